//! Owns how many beds there are at once on a machine, over all test processes: each takes half a gigabyte.

use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SLOTS: usize = 3;
/// A process that holds one bed and waits for another may be what all others wait for: it goes ahead after this time.
const AFTER_THAT_ANYWAY: Duration = Duration::from_secs(150);

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The right to run a bed, given back on drop.
#[derive(Debug)]
pub struct Slot {
    _lock: Option<File>,
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
                let lock = File::create(folder.join(format!("bed-{number}")))
                    .expect("the cache is writable");
                if lock.try_lock().is_ok() {
                    HELD.fetch_add(1, Ordering::Relaxed);
                    return Self { _lock: Some(lock) };
                }
            }
            if HELD.load(Ordering::Relaxed) > 0 && start.elapsed() > AFTER_THAT_ANYWAY {
                HELD.fetch_add(1, Ordering::Relaxed);
                return Self { _lock: None };
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}
