//! Finds the object to explain in a snapshot of its namespace.

use kube::{Resource, ResourceExt as _};

use crate::{
    cluster::snapshot::{List, Listed, ReadError, ReadErrorCause},
    controllers::runtime::command_client::Cluster,
    report::explain::suggestions::not_found_hint,
};

/// Why an object could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("{address}: {error}")]
    Unreadable {
        address: String,
        /// The list that could not be read.
        error: ReadError,
    },
    #[error("{kind} {namespace}/{name} not found: {hint}")]
    NotFound {
        kind: String,
        namespace: String,
        name: String,
        /// Similar names, or what else the user can try.
        hint: String,
    },
    #[error("{address}: the {kind} CRD is not installed: apply the output of `plimsoll crds`")]
    CrdMissing { address: String, kind: String },
    #[error(transparent)]
    Storage(#[from] plimsoll_storage::Error),
    #[error(
        "--storage=local:{0}: no such directory; without --storage the explanation that the recommender stored on the \
         VPA is used"
    )]
    NoDirectory(String),
    #[error(
        "--storage=local:{0}: in use by a recommender, which need not be stopped: without --storage the explanation \
         that the recommender stored on the VPA is used"
    )]
    InUse(String),
}

impl ExplainError {
    pub(super) fn unreadable(cluster: &Cluster, error: &ReadError) -> Self {
        Self::Unreadable { address: cluster.address.clone(), error: error.clone() }
    }
}

/// The objects of a list without which there is no explanation.
pub(super) fn required<'a, K: Resource<DynamicType = ()>>(
    cluster: &Cluster,
    listed: &'a Listed<K>,
) -> Result<&'a List<K>, ExplainError> {
    listed.as_ref().map_err(|error| match error.cause {
        ReadErrorCause::NotServed => {
            let (address, kind) = (cluster.address.clone(), K::kind(&()).into_owned());
            ExplainError::CrdMissing { address, kind }
        }
        _ => ExplainError::unreadable(cluster, error),
    })
}

pub(super) fn find_object<'a, K: Resource<DynamicType = ()>>(
    cluster: &Cluster,
    listed: &'a Listed<K>,
    namespace: &str,
    name: &str,
) -> Result<&'a K, ExplainError> {
    let kind = K::kind(&()).into_owned();
    let what = || format!("{kind} {namespace}/{name}");
    let list = required(cluster, listed).map_err(|error| match error {
        ExplainError::Unreadable { address, error } => {
            ExplainError::Unreadable { address, error: ReadError { what: what(), ..error } }
        }
        other => other,
    })?;
    if let Some(object) = list.objects.iter().find(|object| object.name_any() == name) {
        return Ok(object);
    }
    let has_name = |metadata: &kube::core::ObjectMeta| metadata.name.as_deref() == Some(name);
    if let Some(invalid) = list.invalid.iter().find(|invalid| has_name(&invalid.metadata)) {
        let (what, why) = (what(), invalid.reason.clone());
        let error = ReadError { what, cause: ReadErrorCause::Failed, why };
        return Err(ExplainError::unreadable(cluster, &error));
    }
    let names: Vec<String> = list.objects.iter().map(kube::ResourceExt::name_any).collect();
    let hint = not_found_hint(&format!("{kind}s"), namespace, name, &names);
    Err(ExplainError::NotFound {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        hint,
    })
}
