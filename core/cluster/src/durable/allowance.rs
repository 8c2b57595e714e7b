//! How many bytes of a client's connection may be written. Positions count the bytes of the connection since its beginning.

/// The position in a connection up to which bytes may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    allowed: u64,
    /// Up to here bytes wait for the journal, if they are not allowed yet.
    awaited: u64,
    /// Up to here bytes may be written as soon as those that wait for the journal may.
    end: u64,
}

impl Allowance {
    /// Without a journal all bytes may be written.
    pub const UNLIMITED: Self = Self { allowed: u64::MAX, awaited: 0, end: 0 };
    /// No bytes may be written yet.
    pub const NONE: Self = Self { allowed: 0, awaited: 0, end: 0 };

    /// Bytes up to this position may be written.
    pub const fn position(self) -> u64 {
        self.allowed
    }

    /// The bytes up to this position wait for the journal.
    pub const fn wait(&mut self, position: u64) {
        (self.awaited, self.end) = (position, position);
    }

    /// The bytes up to this position wait for nothing but those before them. True: more bytes may be written now.
    pub const fn pass(&mut self, position: u64) -> bool {
        self.end = position;
        let waits = self.allowed < self.awaited;
        if !waits {
            self.allow(self.awaited);
        }
        !waits
    }

    /// The journal has what the bytes up to this position rest on.
    pub const fn allow(&mut self, position: u64) {
        self.allowed = if position >= self.awaited { self.end } else { position };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_need_not_wait_leave_behind_those_that_do() {
        let mut allowance = Allowance::NONE;
        assert!(allowance.pass(10) && allowance.position() == 10, "nothing waits");
        allowance.wait(20);
        assert!(!allowance.pass(30) && allowance.position() == 10, "what was put behind waits, too");
        allowance.wait(40);
        allowance.allow(20);
        assert_eq!(allowance.position(), 20);
        assert!(!allowance.pass(50));
        allowance.allow(40);
        assert_eq!(allowance.position(), 50);
    }
}
