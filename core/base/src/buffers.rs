//! Buffers that were emptied, for the next who needs one.

use bytes::BytesMut;

/// Smaller buffers are not worth keeping.
const KEEP_FROM_BYTES: usize = 1024;
/// Larger ones would lie in wait for a burst that seldom comes.
const KEEP_UP_TO_BYTES: usize = 256 * 1024;

/// Buffers that were emptied. The last one given is the first taken: it is the likeliest to be in the processor's cache.
#[derive(Debug)]
pub struct BufferPool {
    buffers: Vec<BytesMut>,
    bytes: usize,
    limit: usize,
}

impl BufferPool {
    /// A pool that holds at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { buffers: Vec::new(), bytes: 0, limit }
    }

    /// An empty buffer, with room in it if there is one.
    pub fn take(&mut self) -> BytesMut {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps the memory of `buffer`, unless another handle still reads from it, the pool is full, or the buffer is too small or too large.
    pub fn give(&mut self, mut buffer: BytesMut) {
        buffer.clear();
        // Bytes taken from the front are capacity again only after this call; it returns false where none were taken.
        let _ = buffer.try_reclaim(buffer.capacity() + 1);
        let size = buffer.capacity();
        if (KEEP_FROM_BYTES..=KEEP_UP_TO_BYTES).contains(&size) && self.bytes + size <= self.limit {
            self.bytes += size;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    #[test]
    fn a_buffer_comes_back_whole() {
        let mut pool = BufferPool::new(10_000);
        let mut buffer = BytesMut::with_capacity(4_000);
        buffer.resize(4_000, 1);
        buffer.advance(3_999);
        pool.give(buffer);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.capacity(), 4_000);
        assert_eq!(pool.take().capacity(), 0);
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn the_pool_has_a_limit_and_takes_only_what_is_worth_it() {
        let mut pool = BufferPool::new(5_000);
        for size in [10, 3_000, 3_000, KEEP_UP_TO_BYTES + 1] {
            pool.give(BytesMut::with_capacity(size));
        }
        assert_eq!(pool.bytes, 3_000);
        assert_eq!(pool.buffers.len(), 1);
    }

    #[test]
    fn memory_that_is_read_elsewhere_is_not_given_out() {
        let mut pool = BufferPool::new(10_000);
        let mut buffer = BytesMut::from(&[7; 2_000][..]);
        let other = buffer.split_to(2_000).freeze();
        pool.give(buffer);
        let mut next = pool.take();
        next.extend_from_slice(&[0; 2_000]);
        assert!(other.iter().all(|byte| *byte == 7));
    }
}
