//! Limits the number of testbeds on a machine over all test processes: each needs half a gigabyte.

use std::fs::{self, File};

const SLOTS: usize = 8;

/// The right to run a testbed, released on drop. Its holder must not wait for another one.
#[derive(Debug)]
pub struct TestbedSlot {
    _lock: File,
}

// === impl TestbedSlot ===

impl TestbedSlot {
    /// Takes a slot, if one is free.
    pub fn try_take() -> Option<Self> {
        let folder = xtask::cache::folder().expect("there is a cache folder").join("locks");
        fs::create_dir_all(&folder).expect("the cache folder is writable");
        (0..SLOTS).find_map(|number| {
            let path = folder.join(format!("bed-{number}"));
            let lock = File::create(path).expect("the cache is writable");
            lock.try_lock().is_ok().then_some(Self { _lock: lock })
        })
    }
}
