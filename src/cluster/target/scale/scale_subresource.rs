//! The scale of an object as it is at this moment: whoever changes replicas decides by no older one, and writes it back
//! as it was read.

use serde_json::Value;

use super::{ApiError, ObjectReference, RawScale, Scale, ScaleClient};
use crate::cluster::cache::selector::Selector;

/// What a scale says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleState {
    /// Replicas that are asked for.
    pub spec_replicas: i32,
    /// Pods that there are.
    pub status_replicas: i32,
    /// The pods; an error is what is wrong with what it says of them.
    pub selector: Result<Selector, String>,
    /// What no other object ever has.
    pub uid: Box<str>,
    /// The version of the object, which grows with each change of it; nothing where it is no number.
    pub version: Option<u64>,
}

/// A scale that was just read.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleSubresource {
    /// Whose it is.
    pub target: ObjectReference,
    /// Where it is written.
    pub path: Box<str>,
    /// As it was read.
    pub body: Value,
    /// What it says.
    pub state: ScaleState,
}

/// Why there is no scale, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleReadError {
    /// What the object names cannot be found out about.
    #[error("unable to determine resource for scale target reference: {0}")]
    UnknownKind(String),
    /// The version that it names is none.
    #[error("invalid API version in scale target reference: {0}")]
    InvalidVersion(String),
    /// In no version there is one.
    #[error("[{0}, scale not found]")]
    NotFound(String),
    /// Nobody knows at the moment whether there is one.
    #[error("[{0}, scale not found]")]
    Unavailable(String),
}

impl ScaleClient {
    /// The scale of that object, asked for now. Where its kind is served is remembered.
    pub async fn fetch(&self, key: &ObjectReference) -> Result<ScaleSubresource, ScaleReadError> {
        let asker = &self.discovery;
        let group = key.group().map_err(ScaleReadError::InvalidVersion)?;
        let kinds = asker.kinds(group, &key.kind).await;
        let kinds =
            kinds.as_ref().as_ref().map_err(|why| ScaleReadError::UnknownKind(why.clone()))?;
        let mut failures = Vec::new();
        let mut is_known = false;
        let mut may_pass = false;
        for kind in kinds.iter().filter(|kind| kind.name == key.kind) {
            is_known = true;
            let version = kind.root.trim_start_matches("/apis/").trim_start_matches("/api/");
            let path = kind.scale_path(key).map_err(ScaleReadError::NotFound)?;
            let refused = match asker.get::<Value>(&path).await {
                Ok(body) => match parse_scale(key, path, body) {
                    Ok(scale) => return Ok(scale),
                    Err(why) => why,
                },
                Err(ApiError::NotFound(why)) => why,
                Err(ApiError::Transient(why)) => {
                    may_pass = true;
                    why
                }
            };
            failures.push(format!("could not get scale for the GV {version}, error: {refused}"));
        }
        if !is_known {
            let why = format!("no matches for kind {:?} in group {group:?}", key.kind);
            return Err(ScaleReadError::UnknownKind(why));
        }
        let failures = failures.join(", ");
        Err(if may_pass {
            ScaleReadError::Unavailable(failures)
        } else {
            ScaleReadError::NotFound(failures)
        })
    }
}

fn parse_scale(
    key: &ObjectReference,
    path: String,
    body: Value,
) -> Result<ScaleSubresource, String> {
    let scale: RawScale = serde_json::from_value(body.clone()).map_err(|why| why.to_string())?;
    let (wanted, current) = (scale.spec.replicas.unwrap_or(0), scale.status.replicas.unwrap_or(0));
    let uid = scale.metadata.uid.as_deref().unwrap_or_default().into();
    let version = parse_resource_version(scale.metadata.resource_version.as_deref());
    let Scale::Found { selector, .. } = scale.into_scale(key) else {
        return Err("it is no scale".to_owned());
    };
    let told =
        ScaleState { spec_replicas: wanted, status_replicas: current, selector, uid, version };
    Ok(ScaleSubresource { target: key.clone(), path: path.into(), body, state: told })
}

/// A version as a number, by which it is told whether it is older than another one.
pub(super) fn parse_resource_version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

impl ScaleState {
    /// Whether both say the same, whenever they did.
    pub fn same_state(&self, other: &Self) -> bool {
        let Self { spec_replicas: wanted, status_replicas: current, selector, uid, version: _ } =
            self;
        (wanted, current, selector, uid)
            == (&other.spec_replicas, &other.status_replicas, &other.selector, &other.uid)
    }
}

impl ScaleSubresource {
    /// The same with other replicas, to be written back: where it changed since, the server says so.
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
        let told = &scale.state;
        assert_eq!(
            (told.spec_replicas, told.status_replicas, &*told.uid, told.version),
            (3, 4, "u", Some(7))
        );
        assert_eq!(told.selector.as_ref().map(Selector::as_str), Ok("app=web"));
        let mut expected = body;
        expected["spec"]["replicas"] = json!(5);
        assert_eq!(scale.with_replicas(5), expected);
        // A target that was never scaled says nothing of its replicas.
        let bare = json!({"metadata": {"name": "web"}, "status": {"replicas": 0}});
        let scale = parse_scale(&key, "/path".to_owned(), bare).expect("a scale");
        assert_eq!(
            (scale.state.spec_replicas, scale.with_replicas(2)["spec"]["replicas"].as_i64()),
            (0, Some(2))
        );
        assert!(scale.state.selector.is_err() && scale.state.version.is_none());
    }
}
