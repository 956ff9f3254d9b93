//! Deletes orphaned checkpoint objects.

use super::{
    api_error::ApiError,
    backend::CheckpointStorage,
    load::CheckpointPages,
    object::{CheckpointContent, CheckpointObject},
};
use crate::{Error, OrphanPredicate, WritePermit};

impl CheckpointStorage {
    /// Lists all objects page by page and deletes the orphans. Objects that cannot be read are kept.
    pub(super) async fn collect_orphans(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let mut removed = 0;
        let namespace = self.options.namespace.as_deref();
        let mut list = CheckpointPages::new(namespace);
        while let Some(page) = list.next(self).await? {
            for object in page {
                let Ok(object) = CheckpointObject::read(object) else { continue };
                let ours = matches!(
                    object.content,
                    CheckpointContent::History(_) | CheckpointContent::Empty
                );
                if ours && orphaned(&object.key) {
                    removed += usize::from(self.remove(object, permit).await?);
                }
            }
        }
        self.table.forget_orphans(orphaned);
        Ok(removed)
    }

    async fn remove(
        &self,
        object: CheckpointObject,
        permit: &dyn WritePermit,
    ) -> Result<bool, Error> {
        let mut failures = 0;
        let namespace = &*object.key.vpa.namespace;
        loop {
            permit.acquire().await?;
            self.table.mark_unknown(&object.key);
            let (uid, version) = (object.uid.clone(), &*object.version);
            match self.calls.delete(namespace, &object.name, uid, version).await {
                Ok(()) => {
                    self.table.put(&object.key, None);
                    return Ok(true);
                }
                // Already deleted, or changed since: the writer knows of an owner.
                Err(ApiError::NotFound(_) | ApiError::Conflict) => return Ok(false),
                Err(failure) => {
                    let pause = match &failure {
                        ApiError::Transient(_, retry_after) => {
                            super::client::pause(failures, *retry_after)
                        }
                        _ => None,
                    };
                    let Some(pause) = pause else {
                        return Err(failure.into_error(&Self::location(Some(namespace))));
                    };
                    tokio::time::sleep(pause).await;
                }
            }
            failures += 1;
        }
    }
}
