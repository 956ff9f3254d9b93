//! Removing the objects of which nobody is the owner any more.

use super::{
    failure::Failure,
    load::Pages,
    object::{Content, Object},
    store::Checkpoints,
};
use crate::{Error, Orphaned, WritePermit};

impl Checkpoints {
    /// One pass over all objects, a page at a time. What cannot be read is nobody's to remove.
    pub(super) async fn collect(
        &self,
        orphaned: Orphaned<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let mut removed = 0;
        let namespace = self.options.namespace.as_deref();
        let mut list = Pages::new(namespace);
        while let Some(page) = list.next(self).await? {
            for object in page {
                let Ok(object) = Object::read(object) else { continue };
                let ours = matches!(object.content, Content::History(_) | Content::Nothing);
                if ours && orphaned(&object.key) {
                    removed += usize::from(self.remove(object, permit).await?);
                }
            }
        }
        self.table.forget(orphaned);
        Ok(removed)
    }

    async fn remove(&self, object: Object, permit: &dyn WritePermit) -> Result<bool, Error> {
        let mut failures = 0;
        let namespace = &*object.key.vpa.namespace;
        loop {
            permit.acquire().await?;
            self.table.doubt(&object.key);
            let (uid, version) = (object.uid.clone(), &*object.version);
            match self.calls.delete(namespace, &object.name, uid, version).await {
                Ok(()) => {
                    self.table.put(&object.key, None);
                    return Ok(true);
                }
                // Gone already, or written since: whoever wrote it knows of an owner.
                Err(Failure::Absent(_) | Failure::Conflict) => return Ok(false),
                Err(failure) => {
                    let pause = match &failure {
                        Failure::Passing(_, asked) => super::calls::pause(failures, *asked),
                        _ => None,
                    };
                    let Some(pause) = pause else {
                        return Err(failure.into_error(&Self::place(Some(namespace))));
                    };
                    tokio::time::sleep(pause).await;
                }
            }
            failures += 1;
        }
    }
}
