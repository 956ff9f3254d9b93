//! The conformance suite on the backends that there are.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use plimsoll_storage::{
    Local, Memory, Storage,
    conformance::{
        Case, Maker, Reopened, Subject, Tampering, WriteUnit, check, failed, not_applicable, table,
    },
    local::tamper,
};
use tempfile::TempDir;

use super::place::place;

struct LocalSubject {
    local: Local,
    directory: Arc<TempDir>,
}

struct LocalMaker;

#[async_trait]
impl Maker for LocalMaker {
    async fn subject(&self) -> Result<Arc<dyn Subject>, String> {
        let directory = Arc::new(place());
        let (local, _) = Local::open(directory.path()).map_err(|e| e.to_string())?;
        Ok(Arc::new(LocalSubject { local, directory }))
    }
}

fn reopened(directory: &Path) -> Result<Local, String> {
    Local::open(directory).map(|(local, _)| local).map_err(|e| e.to_string())
}

#[async_trait]
impl Subject for LocalSubject {
    fn storage(&self) -> &dyn Storage {
        &self.local
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Batch
    }

    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Reopened, String> {
        let directory = Arc::clone(&self.directory);
        drop(self);
        // Waits for the lock, in case a save that was dropped half-way still holds it.
        drop(reopened(directory.path())?);
        match tampering {
            Tampering::None => {}
            Tampering::Corrupt(key) => {
                let flipped =
                    tamper::flip_bit(directory.path(), &key).map_err(|e| e.to_string())?;
                assert!(flipped, "the record to corrupt is stored");
            }
            Tampering::Foreign(key) => {
                tamper::place(directory.path(), &key, 200, b"of another version")
                    .map_err(|e| e.to_string())?;
            }
        }
        let local = reopened(directory.path())?;
        Ok(Reopened::Opened(Arc::new(LocalSubject { local, directory })))
    }
}

struct MemorySubject(Memory);

struct MemoryMaker;

#[async_trait]
impl Maker for MemoryMaker {
    async fn subject(&self) -> Result<Arc<dyn Subject>, String> {
        Ok(Arc::new(MemorySubject(Memory::new())))
    }
}

#[async_trait]
impl Subject for MemorySubject {
    fn storage(&self) -> &dyn Storage {
        &self.0
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Record
    }

    async fn reopen(self: Arc<Self>, _: Tampering) -> Result<Reopened, String> {
        Ok(Reopened::Unable(self))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn local_passes_every_case_and_none_is_left_out() {
    let outcomes = check(&LocalMaker).await;
    assert_eq!(
        (failed(&outcomes), not_applicable(&outcomes)),
        (vec![], vec![]),
        "{}",
        table(&outcomes)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_passes_every_case_that_applies_to_what_ends_with_the_process() {
    let outcomes = check(&MemoryMaker).await;
    let gone = vec![Case::SurvivesReopen, Case::MalformedIsSkipped, Case::ForeignIsLeftAlone];
    assert_eq!(
        (failed(&outcomes), not_applicable(&outcomes)),
        (vec![], gone),
        "{}",
        table(&outcomes)
    );
}
