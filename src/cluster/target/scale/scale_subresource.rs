//! The current scale of an object: horizontal scaling reads it before each decision, and writes it back as it was read.

use serde_json::Value;

use super::{ObjectReference, RawScale, Scale};
use crate::cluster::cache::selector::Selector;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleState {
    pub spec_replicas: i32,
    pub status_replicas: i32,
    /// Selects the pods; an error if the scale has no valid selector.
    pub selector: Result<Selector, String>,
    pub uid: Box<str>,
    /// The resource version of the object; `None` if it is not a number.
    pub version: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScaleSubresource {
    pub target: ObjectReference,
    pub path: Box<str>,
    pub body: Value,
    pub state: ScaleState,
}

/// Why a scale is not available, with upstream's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleReadError {
    #[error("unable to determine resource for scale target reference: {0}")]
    UnknownKind(String),
    #[error("invalid API version in scale target reference: {0}")]
    InvalidVersion(String),
    /// No API version has a scale of the object.
    #[error("[{0}, scale not found]")]
    NotFound(String),
    /// Not known at the moment whether the object has a scale.
    #[error("[{0}, scale not found]")]
    Unavailable(String),
}

pub(super) fn parse_scale(
    key: &ObjectReference,
    path: String,
    body: Value,
) -> Result<ScaleSubresource, String> {
    let scale: RawScale = serde_json::from_value(body.clone()).map_err(|why| why.to_string())?;
    let (spec_replicas, status_replicas) =
        (scale.spec.replicas.unwrap_or(0), scale.status.replicas.unwrap_or(0));
    let uid = scale.metadata.uid.as_deref().unwrap_or_default().into();
    let version = parse_resource_version(scale.metadata.resource_version.as_deref());
    let Scale::Found { selector, .. } = scale.into_scale(key) else {
        return Err("not a scale".to_owned());
    };
    let state = ScaleState { spec_replicas, status_replicas, selector, uid, version };
    Ok(ScaleSubresource { target: key.clone(), path: path.into(), body, state })
}

/// A resource version as a number, by which the older of two versions is known.
pub(super) fn parse_resource_version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

impl ScaleState {
    pub fn same_state(&self, other: &Self) -> bool {
        let Self { spec_replicas, status_replicas, selector, uid, version: _ } = self;
        (spec_replicas, status_replicas, selector, uid)
            == (&other.spec_replicas, &other.status_replicas, &other.selector, &other.uid)
    }
}

impl ScaleSubresource {
    /// The body with other replicas, to be written back: the server reports a conflict if the scale has changed.
    #[must_use]
    pub fn with_replicas(&self, replicas: i32) -> Value {
        let mut body = self.body.clone();
        if !body["spec"].is_object() {
            body["spec"] = Value::Object(serde_json::Map::new());
        }
        body["spec"]["replicas"] = replicas.into();
        body
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scale_is_written_back_as_it_was_read_but_for_replicas() {
        let key = ObjectReference {
            namespace: "shop".into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        };
        let body = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3}, "status": {"replicas": 4, "selector": "app=web"},
        });
        let scale = parse_scale(&key, "/path".to_owned(), body.clone()).expect("a scale");
        let state = &scale.state;
        assert_eq!(
            (state.spec_replicas, state.status_replicas, &*state.uid, state.version),
            (3, 4, "u", Some(7))
        );
        assert_eq!(state.selector.as_ref().map(Selector::as_str), Ok("app=web"));
        let mut expected = body;
        expected["spec"]["replicas"] = json!(5);
        assert_eq!(scale.with_replicas(5), expected);
        // The scale of a target that was never scaled has no replicas.
        let bare = json!({"metadata": {"name": "web"}, "status": {"replicas": 0}});
        let scale = parse_scale(&key, "/path".to_owned(), bare).expect("a scale");
        assert_eq!(
            (scale.state.spec_replicas, scale.with_replicas(2)["spec"]["replicas"].as_i64()),
            (0, Some(2))
        );
        assert!(scale.state.selector.is_err() && scale.state.version.is_none());
    }
}
