//! Owns how many beds there are at once on a machine, over all test processes: each takes half a gigabyte.

use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

const SLOTS: usize = 8;
/// Processes that hold a shared bed and wait for a private one may wait for each other, so such a process goes ahead
/// after a while, with one bed more than there are slots for.
const HOLDERS_WAIT: Duration = Duration::from_secs(10);
/// A process that holds none may be what such a process waits for.
const OTHERS_WAIT: Duration = Duration::from_secs(30);

static HELD: AtomicUsize = AtomicUsize::new(0);
static EXTRA: Semaphore = Semaphore::const_new(1);

/// The right to run a bed, given back on drop.
#[derive(Debug)]
pub struct Slot {
    _lock: Option<File>,
    _extra: Option<SemaphorePermit<'static>>,
}

// === impl Slot ===

impl Slot {
    /// Waits for a free slot.
    pub async fn take() -> Self {
        let folder = xtask::cache::folder().expect("there is a cache folder").join("locks");
        fs::create_dir_all(&folder).expect("the cache folder is writable");
        let start = Instant::now();
        loop {
            for number in 0..SLOTS {
                let path = folder.join(format!("bed-{number}"));
                let lock = File::create(path).expect("the cache is writable");
                if lock.try_lock().is_ok() {
                    return Self::held(Some(lock), None);
                }
            }
            let holds = HELD.load(Ordering::Relaxed) > 0;
            let patience = if holds { HOLDERS_WAIT } else { OTHERS_WAIT };
            if start.elapsed() > patience
                && let Ok(extra) = EXTRA.try_acquire()
            {
                return Self::held(None, Some(extra));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn held(lock: Option<File>, extra: Option<SemaphorePermit<'static>>) -> Self {
        HELD.fetch_add(1, Ordering::Relaxed);
        Self { _lock: lock, _extra: extra }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}
