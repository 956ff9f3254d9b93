//! What stands above an object: its chain of controllers, each known by its uid and asked for once in a while.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::{Asker, ObjectKey, Refusal, Scales};
use crate::observe::{
    answers::{Answer, Asks},
    scaled_pod::OwnedBy,
};

/// Nobody has longer chains, and one that goes in a circle has no end.
const LONGEST: usize = 8;

/// What stands right above an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This one.
    To(OwnedBy),
    /// Nothing: it is the topmost, or gone.
    Top,
    /// Nobody can tell.
    Unknown,
}

#[derive(Deserialize)]
struct Owned {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Scales {
    /// Whether the object of this uid is `from`, or controls it, or what controls it. Nothing where nobody can tell: it may
    /// not be read, or the server is away.
    pub async fn is_above(&self, uid: &str, namespace: &str, from: &OwnedBy) -> Option<bool> {
        let mut at = from.clone();
        for _ in 0..LONGEST {
            if *at.uid == *uid {
                return Some(true);
            }
            let step = self.above.get(&at.uid, self.step_question(namespace, &at)).await;
            match &*step {
                Step::To(next) => at = next.clone(),
                Step::Top => return Some(false),
                Step::Unknown => return None,
            }
        }
        Some(false)
    }

    fn step_question(
        &self,
        namespace: &str,
        of: &OwnedBy,
    ) -> impl FnOnce(Asks) -> BoxFuture<'static, Answer<Arc<Step>>> + Send + use<> {
        let (asker, lifetimes) = (self.asker.clone(), self.lifetimes);
        let key = ObjectKey {
            namespace: namespace.into(),
            api_version: of.api_version.clone(),
            kind: of.kind.clone(),
            name: of.name.clone(),
        };
        let uid = of.uid.clone();
        move |asks| {
            let asker = asker.asking(asks);
            Box::pin(async move {
                let step = asker.step(&key, &uid).await;
                let lifetime = match step {
                    Step::To(_) => lifetimes.found,
                    // Something may still take it on.
                    Step::Top => lifetimes.missing,
                    Step::Unknown => lifetimes.failed,
                };
                let definite = step != Step::Unknown;
                Answer { value: Arc::new(step), lifetime, definite }
            })
        }
    }
}

impl Asker {
    async fn step(&self, key: &ObjectKey, uid: &str) -> Step {
        let Ok(group) = key.group() else { return Step::Top };
        let kinds = self.kinds(group, &key.kind).await;
        let Ok(kinds) = &*kinds else { return Step::Unknown };
        let Some(kind) = kinds.iter().find(|kind| kind.name == key.kind) else { return Step::Top };
        // No object has such a name.
        let Ok(path) = kind.path(key) else { return Step::Top };
        let found = match self.ask::<Owned>(&path).await {
            Ok(found) => found.metadata,
            Err(Refusal::NotFound(_)) => return Step::Top,
            Err(Refusal::Passing(_)) => return Step::Unknown,
        };
        // Another one of the same name owns nothing of what the first one left.
        if found.uid.as_deref() != Some(uid) {
            return Step::Top;
        }
        let mut owners = found.owner_references.unwrap_or_default();
        owners.retain(|owner| owner.controller == Some(true));
        owners.first().map_or(Step::Top, |owner| Step::To(OwnedBy::from(owner)))
    }
}
