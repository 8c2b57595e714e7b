//! How many connections each address has, and how fast they come.
//!
//! An IPv6 client may have 2^64 addresses of its own: those that share their first 64 bits count as one.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sedge_base::{Instant, Rate, TokenBucket};

use crate::config::LimitsConfig;

/// Bits of an IPv6 address that count.
const IPV6_PREFIX: u128 = !0 << 64;

/// Why an address gets no more connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It has as many as it may: `limits.max_connections_per_address`.
    Number,
    /// They come too fast: `limits.max_connect_rate_per_address`.
    Rate,
}

/// See the module. Shared by the threads of a node.
#[derive(Debug)]
pub(crate) struct AddressTable {
    connections_max: usize,
    rate: Rate,
    /// Addresses without a connection that are remembered.
    idle_max: usize,
    table: Mutex<Table>,
    /// Connections closed because there were too many.
    pub(crate) over_limit: AtomicU64,
    /// Connections closed because they came too fast.
    pub(crate) over_rate: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<IpAddr, Entry>,
    /// Addresses that had no connection when they were put in, oldest first; each at most once.
    idle: VecDeque<IpAddr>,
}

#[derive(Debug, Default)]
struct Entry {
    connections: usize,
    bucket: TokenBucket,
    /// It is in [`Table::idle`].
    is_listed: bool,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressSeat {
    addresses: Arc<AddressTable>,
    address: IpAddr,
}

impl AddressTable {
    /// `None` if addresses have no limits.
    pub(crate) fn new(limits: &LimitsConfig) -> Option<Arc<Self>> {
        let (most, rate) = (limits.max_connections_per_address, limits.connect_rate_per_address);
        let is_limited = most > 0 || rate.is_limited();
        is_limited.then(|| {
            Arc::new(Self {
                connections_max: if most == 0 { usize::MAX } else { most },
                rate,
                idle_max: limits.max_known_addresses,
                table: Mutex::default(),
                over_limit: AtomicU64::new(0),
                over_rate: AtomicU64::new(0),
            })
        })
    }

    /// One more connection of this address, if it may have one.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Result<Box<AddressSeat>, Excess> {
        let address = network(address);
        let mut table = self.table();
        table.forget_idle(now, self.idle_max);
        let entry = table.entries.entry(address).or_default();
        let excess = if entry.connections >= self.connections_max {
            self.over_limit.fetch_add(1, Ordering::Relaxed);
            Some(Excess::Number)
        } else if entry.bucket.try_take(self.rate, now) {
            entry.connections += 1;
            None
        } else {
            self.over_rate.fetch_add(1, Ordering::Relaxed);
            Some(Excess::Rate)
        };
        match excess {
            Some(excess) => {
                table.list_if_idle(address);
                Err(excess)
            }
            None => Ok(Box::new(AddressSeat { addresses: Arc::clone(self), address })),
        }
    }

    /// How many addresses are known.
    pub(crate) fn known(&self) -> usize {
        self.table().entries.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets addresses without a connection: those that have waited long enough to be as good as new, a few at a time, and the
    /// oldest of too many.
    fn forget_idle(&mut self, now: Instant, idle_max: usize) {
        let mut looks = 2;
        while let Some(&address) = self.idle.front() {
            let Some(entry) = self.entries.get_mut(&address) else {
                self.idle.pop_front();
                continue;
            };
            let is_busy = entry.connections > 0;
            let is_over = self.idle.len() >= idle_max.max(1);
            if !is_busy && !is_over && (looks == 0 || !entry.bucket.is_full(now)) {
                return;
            }
            looks -= usize::from(looks > 0);
            self.idle.pop_front();
            entry.is_listed = false;
            if !is_busy {
                self.entries.remove(&address);
            }
        }
    }

    fn list_if_idle(&mut self, address: IpAddr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        if entry.connections == 0 && !entry.is_listed {
            entry.is_listed = true;
            self.idle.push_back(address);
        }
    }
}

impl Drop for AddressSeat {
    fn drop(&mut self) {
        let mut table = self.addresses.table();
        if let Some(entry) = table.entries.get_mut(&self.address) {
            entry.connections -= 1;
        }
        table.list_if_idle(self.address);
    }
}

/// The part of an address that counts: of an IPv6 address the first 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & IPV6_PREFIX)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(most: usize, per_second: u64, known: usize) -> Arc<AddressTable> {
        AddressTable::new(&LimitsConfig {
            max_connections_per_address: most,
            connect_rate_per_address: Rate { per_second, burst: 2 },
            max_known_addresses: known,
            ..LimitsConfig::default()
        })
        .unwrap()
    }

    fn v4(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_has_so_many_at_once_and_so_many_a_second() {
        let table = addresses(3, 1, 10);
        let at = Instant::from_millis;
        let mut seats: Vec<_> = (0..2).map(|_| table.enter(v4(1), at(0)).unwrap()).collect();
        assert_eq!(table.enter(v4(1), at(10)).unwrap_err(), Excess::Rate);
        seats.push(table.enter(v4(1), at(2_000)).unwrap());
        assert_eq!(table.enter(v4(1), at(9_000)).unwrap_err(), Excess::Number);
        assert!(table.enter(v4(2), at(9_000)).is_ok());
        seats.pop();
        assert!(table.enter(v4(1), at(9_000)).is_ok());
        assert!(AddressTable::new(&LimitsConfig::default()).is_none());
    }

    #[test]
    fn ipv6_counts_by_network_and_mapped_ipv4_as_ipv4() {
        let table = addresses(1, 0, 10);
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let now = Instant::ZERO;
        let _one = table.enter(parse("2001:db8::1"), now).unwrap();
        assert!(table.enter(parse("2001:db8::ffff:0:2"), now).is_err());
        let _two = table.enter(parse("2001:db8:0:1::1"), now).unwrap();
        let _three = table.enter(parse("192.0.2.1"), now).unwrap();
        assert!(table.enter(parse("::ffff:192.0.2.1"), now).is_err());
    }

    #[test]
    fn the_table_is_bounded_and_shrinks() {
        let table = addresses(0, 1, 100);
        let now = Instant::from_millis(1);
        let seat = table.enter(v4(0), now).unwrap();
        for number in 1..10_000 {
            drop(table.enter(v4(number), now).unwrap());
            assert!(table.known() <= 102 && table.table().idle.len() <= 101);
        }
        assert!(table.known() > 90);
        let later = Instant::from_millis(60_000);
        for _ in 0..100 {
            drop(table.enter(v4(7), later));
        }
        assert!(table.known() <= 2, "{}", table.known());
        drop(seat);
        // An address that comes and goes is in the list once.
        for millis in 0..1_000 {
            drop(table.enter(v4(7), Instant::from_millis(100_000 + millis)));
        }
        assert!(table.table().idle.len() <= 2);
    }
}
