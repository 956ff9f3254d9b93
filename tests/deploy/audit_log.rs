//! The audit log of an API server with the requests of service accounts.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::Mutex,
};

use serde_json::Value;

use super::rbac::RbacRight;

/// Logs metadata of all requests by service accounts.
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None}
";

/// An audit log.
#[derive(Debug)]
pub struct AuditLog {
    log: PathBuf,
    parsed: Mutex<Parsed>,
}

/// Already parsed requests: the log grows to megabytes, and tests poll it each second.
#[derive(Debug, Default)]
struct Parsed {
    requests: BTreeSet<AuditedRequest>,
    bytes: u64,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditedRequest {
    /// The account, as `namespace/name`.
    pub account: String,
    pub verb: String,
    pub group: String,
    /// With the subresource.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// Status code of the response.
    pub code: u64,
}

impl AuditLog {
    /// The API server flags for the audit log; writes its policy into the folder.
    pub fn flags(folder: &std::path::Path) -> Vec<String> {
        let policy = folder.join("audit.yaml");
        fs::write(&policy, POLICY).expect("writable");
        vec![
            format!("--audit-policy-file={}", policy.display()),
            "--audit-log-path=@audit.log".to_owned(),
        ]
    }

    /// The audit log of the server with this folder.
    pub fn of(folder: &std::path::Path) -> Self {
        Self { log: folder.join("audit.log"), parsed: Mutex::default() }
    }

    /// The current length of the log.
    pub fn position(&self) -> u64 {
        let text = fs::read_to_string(&self.log).expect("an audit log");
        // The last line may be incomplete.
        text.rfind('\n').map_or(0, |end| end as u64 + 1)
    }

    /// All distinct requests so far.
    pub fn requests(&self) -> BTreeSet<AuditedRequest> {
        let mut parsed = self.parsed.lock().expect("no panic");
        let text = self.whole_lines(parsed.bytes);
        parsed.bytes += text.len() as u64;
        parsed.requests.extend(text.lines().filter_map(request));
        parsed.requests.clone()
    }

    /// All distinct requests since an offset.
    pub fn requests_since(&self, mark: u64) -> BTreeSet<AuditedRequest> {
        self.whole_lines(mark).lines().filter_map(request).collect()
    }

    fn whole_lines(&self, offset: u64) -> String {
        let mut log = fs::File::open(&self.log).expect("an audit log");
        log.seek(SeekFrom::Start(offset)).expect("within the log");
        let mut text = String::new();
        log.read_to_string(&mut text).expect("text");
        // The last line may be incomplete.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text
    }
}

fn request(line: &str) -> Option<AuditedRequest> {
    let event: Value = serde_json::from_str(line).expect("JSON");
    let word =
        |place: &str| event.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
    let account = word("/user/username").strip_prefix("system:serviceaccount:")?.replace(':', "/");
    let resource = match word("/objectRef/subresource") {
        sub if sub.is_empty() => word("/objectRef/resource"),
        sub => format!("{}/{sub}", word("/objectRef/resource")),
    };
    Some(AuditedRequest {
        account,
        verb: word("/verb"),
        group: word("/objectRef/apiGroup"),
        resource,
        namespace: word("/objectRef/namespace"),
        name: word("/objectRef/name"),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
    })
}

impl RbacRight {
    /// Whether this right allows the request.
    pub fn allows(&self, request: &AuditedRequest) -> bool {
        let fits = |allowed: &Option<String>, requested: &str| {
            allowed.as_deref().is_none_or(|it| it == requested)
        };
        let is_resource = match self.resource.strip_prefix('*') {
            Some(rest) => request.resource.ends_with(rest),
            None => self.resource == request.resource,
        };
        is_resource
            && (self.group == "*" || self.group == request.group)
            && self.verb == request.verb
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
    }
}
