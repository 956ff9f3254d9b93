//! A delaying work queue like client-go's: keys that are due at the same time are popped in the order of its binary
//! heap.

use std::collections::VecDeque;

/// Keys that are delayed, and keys that are due.
#[derive(Debug, Default)]
pub struct DelayingQueue {
    /// A binary heap in the layout of Go's `container/heap`, which determines the order of equal times.
    waiting: Vec<(i64, String)>,
    due: VecDeque<String>,
}

impl DelayingQueue {
    /// Adds a key at a time. A key that is already delayed can only move earlier.
    pub fn add(&mut self, key: &str, at: i64) {
        if let Some(index) = self.waiting.iter().position(|(_, waiting)| waiting == key) {
            if self.waiting[index].0 > at {
                self.waiting[index].0 = at;
                if !self.down(index, self.waiting.len()) {
                    self.up(index);
                }
            }
            return;
        }
        self.waiting.push((at, key.to_owned()));
        self.up(self.waiting.len() - 1);
    }

    /// When the next key is due.
    pub fn next_at(&self) -> Option<i64> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Pops a key that is due.
    pub fn pop_due(&mut self, now: i64) -> Option<String> {
        while self.next_at().is_some_and(|at| at <= now) {
            let last = self.waiting.len() - 1;
            self.waiting.swap(0, last);
            self.down(0, last);
            if let Some((_, key)) = self.waiting.pop()
                && !self.due.contains(&key)
            {
                self.due.push_back(key);
            }
        }
        self.due.pop_front()
    }

    fn up(&mut self, mut index: usize) {
        while index > 0 {
            let parent = (index - 1) / 2;
            if self.waiting[index].0 >= self.waiting[parent].0 {
                break;
            }
            self.waiting.swap(index, parent);
            index = parent;
        }
    }

    /// Sifts an element down; returns whether anything moved.
    fn down(&mut self, start: usize, length: usize) -> bool {
        let mut index = start;
        loop {
            let left = 2 * index + 1;
            if left >= length {
                break;
            }
            let right = left + 1;
            let smaller = right < length && self.waiting[right].0 < self.waiting[left].0;
            let child = if smaller { right } else { left };
            if self.waiting[child].0 >= self.waiting[index].0 {
                break;
            }
            self.waiting.swap(index, child);
            index = child;
        }
        index > start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_due_at_the_same_time_are_returned_in_heap_order() {
        let mut queue = DelayingQueue::default();
        for key in ["a", "b", "c"] {
            queue.add(key, 10);
        }
        queue.add("a", 20);
        assert_eq!(queue.pop_due(9), None);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_due(10)).collect();
        assert_eq!(order, ["a", "c", "b"]);
        queue.add("d", 30);
        queue.add("d", 20);
        assert_eq!(queue.next_at(), Some(20));
    }
}
