//! The conformance suite on the local storage.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use plimsoll_storage::{LocalStorage, Storage};
use tempfile::TempDir;

use super::conformance::{
    BackendFactory, Tampering, TestBackend, WriteUnit, failed_cases, format_table,
    not_applicable_cases, run_suite,
};
use super::corruption;
use super::temp_store::temp_directory;

struct LocalSubject {
    local: LocalStorage,
    directory: Arc<TempDir>,
}

struct LocalMaker;

#[async_trait]
impl BackendFactory for LocalMaker {
    async fn create(&self) -> Result<Arc<dyn TestBackend>, String> {
        let directory = Arc::new(temp_directory());
        let (local, _) = LocalStorage::open(directory.path()).map_err(|e| e.to_string())?;
        Ok(Arc::new(LocalSubject { local, directory }))
    }
}

fn reopened(directory: &Path) -> Result<LocalStorage, String> {
    LocalStorage::open(directory).map(|(local, _)| local).map_err(|e| e.to_string())
}

#[async_trait]
impl TestBackend for LocalSubject {
    fn storage(&self) -> &dyn Storage {
        &self.local
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Batch
    }

    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Arc<dyn TestBackend>, String> {
        let directory = Arc::clone(&self.directory);
        drop(self);
        // Waits for the lock, in case a cancelled save still holds it.
        drop(reopened(directory.path())?);
        match tampering {
            Tampering::None => {}
            Tampering::Corrupt(key) => {
                let flipped =
                    corruption::flip_bit(directory.path(), &key).map_err(|e| e.to_string())?;
                assert!(flipped, "the record to corrupt is stored");
            }
            Tampering::Foreign(key) => {
                corruption::write_raw_record(directory.path(), &key, 200, b"of another version")
                    .map_err(|e| e.to_string())?;
            }
        }
        let local = reopened(directory.path())?;
        Ok(Arc::new(LocalSubject { local, directory }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn local_storage_passes_every_case() {
    let outcomes = run_suite(&LocalMaker).await;
    assert_eq!(
        (failed_cases(&outcomes), not_applicable_cases(&outcomes)),
        (vec![], vec![]),
        "{}",
        format_table(&outcomes)
    );
}
