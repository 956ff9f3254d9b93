//! The webhook's own certificates, kept in a Secret that all replicas share: made when there are none, made anew before
//! they end. The one before stays, with its authority, for as long as it holds: not everybody learns of the new one at
//! once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Client,
    api::{Api, ObjectMeta, Patch, PatchParams, PostParams},
};
use plimsoll_core::types::Time;
use plimsoll_storage::{NotLeader, WritePermit};
use serde_json::json;

use crate::cluster::{
    server::certificate::{
        CaBundle, CertificateError, CertificateSpec, IssuedCertificate, Validity, issue,
        rotation::needs_renewal,
    },
    write::{
        AccessRule, WriteStats,
        access_review::ensure_can_create,
        request::{self, RequestError},
        stats::WriteKind,
    },
};

const KIND: WriteKind = WriteKind::Certificate;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// So often others may write the Secret between our look and our write before it is left for later.
const TRIES: usize = 5;
/// The newest certificate and its key, by the names that Secrets of this type have.
const CURRENT_KEYS: [&str; 3] = ["tls.crt", "tls.key", "authority.crt"];
/// The one before.
const PREVIOUS_KEYS: [&str; 3] = ["previous.crt", "previous.key", "previous-authority.crt"];
/// All authorities that count, for whoever registers the webhook by other means.
const CA_BUNDLE_KEY: &str = "ca.crt";

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateSecretError {
    /// This process may not write now.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// None could be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The server refused, or gave no answer.
    #[error("the Secret {secret} with the webhook's certificate cannot be had: {why}{hint}")]
    Failed {
        /// Namespace and name.
        secret: String,
        /// What came of it.
        why: RequestError,
        /// What to do about it, where that is known.
        hint: String,
    },
    /// Others wrote it each time.
    #[error("the Secret {0} was not written: somebody else changed it {TRIES} times meanwhile")]
    Conflict(String),
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificates {
    /// The newest first; one or two.
    pub pairs: Vec<IssuedCertificate>,
    /// Whether it was written just now.
    pub was_renewed: bool,
}

/// Keeps the Secret.
#[derive(Debug)]
pub struct CertificateSecret {
    secrets: Api<Secret>,
    namespace: String,
    name: String,
    stats: Arc<WriteStats>,
}

impl CertificateSecret {
    /// Of that name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            stats: Arc::default(),
        }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        self.stats = stats;
        self
    }

    /// What RBAC must allow; making it cannot be restricted to a name.
    pub fn rules(&self) -> [AccessRule; 3] {
        let rule = |verb| AccessRule::new(verb, "", "secrets").in_namespace(&self.namespace);
        [rule("get").for_name(&self.name), rule("patch").for_name(&self.name), rule("create")]
    }

    /// Reads what is kept, and renews it if it is time for that.
    pub async fn ensure(
        &self,
        permit: &dyn WritePermit,
        wanted: &CertificateSpec,
        now: Time,
    ) -> Result<StoredCertificates, CertificateSecretError> {
        for _ in 0..TRIES {
            let read =
                request::read_with_timeout(REQUEST_LIMIT, self.secrets.get_opt(&self.name)).await;
            let read = read.map_err(|why| self.write_error(why))?;
            let stored = read.as_ref().map(stored_pairs).unwrap_or_default();
            if read.is_some() && is_current(&stored, wanted, now) {
                return Ok(StoredCertificates {
                    pairs: unexpired(stored, now),
                    was_renewed: false,
                });
            }
            let mut pairs = vec![issue(wanted, now)?];
            pairs.extend(unexpired(stored, now).into_iter().take(1));
            let written = match &read {
                None => self.create(permit, &pairs).await?,
                Some(current) => self.patch(permit, current, &pairs).await?,
            };
            if written {
                return Ok(StoredCertificates { pairs, was_renewed: true });
            }
        }
        Err(CertificateSecretError::Conflict(self.namespaced_name()))
    }

    /// `false`: somebody else has made it meanwhile.
    async fn create(
        &self,
        permit: &dyn WritePermit,
        pairs: &[IssuedCertificate],
    ) -> Result<bool, CertificateSecretError> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let data = secret_data(pairs).into_iter().map(|(key, value)| (key.to_owned(), value));
        let secret = Secret {
            metadata,
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.collect()),
            ..Secret::default()
        };
        let [.., create] = self.rules();
        ensure_can_create(&self.secrets, create)
            .await
            .map_err(|why| self.write_error(why.into()))?;
        permit.acquire().await?;
        let parameters = PostParams::default();
        let asked = self.secrets.create(&parameters, &secret);
        self.is_written(request::write_counted(&self.stats, KIND, REQUEST_LIMIT, asked).await)
    }

    /// `false`: somebody else has changed it meanwhile.
    async fn patch(
        &self,
        permit: &dyn WritePermit,
        current: &Secret,
        pairs: &[IssuedCertificate],
    ) -> Result<bool, CertificateSecretError> {
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let mut fields = json!(secret_data(pairs));
        if pairs.len() < 2 {
            for key in PREVIOUS_KEYS {
                fields[key] = json!(null);
            }
        }
        let patch = json!({"metadata": {"resourceVersion": version}, "data": fields});
        permit.acquire().await?;
        let parameters = PatchParams::default();
        let patch = Patch::Merge(&patch);
        let asked = self.secrets.patch(&self.name, &parameters, &patch);
        self.is_written(request::write_counted(&self.stats, KIND, REQUEST_LIMIT, asked).await)
    }

    fn is_written<T>(
        &self,
        answer: Result<T, RequestError>,
    ) -> Result<bool, CertificateSecretError> {
        match answer {
            Ok(_) => Ok(true),
            Err(failed) if matches!(failed.code(), Some(404 | 409)) => Ok(false),
            Err(failed) => Err(self.write_error(failed)),
        }
    }

    fn write_error(&self, why: RequestError) -> CertificateSecretError {
        let hint = match why.code() {
            Some(403) => {
                let rules: Vec<String> = self.rules().iter().map(ToString::to_string).collect();
                format!("; allow {}, or mount certificates (--tls-cert-file)", rules.join(", "))
            }
            _ => String::new(),
        };
        CertificateSecretError::Failed { secret: self.namespaced_name(), why, hint }
    }

    fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What is in a Secret, the newest first. What is not whole is not there.
fn stored_pairs(secret: &Secret) -> Vec<IssuedCertificate> {
    let field = |name: &str| Some(secret.data.as_ref()?.get(name)?.0.clone());
    let pair = |[chain, key, authority]: [&str; 3]| {
        Some(IssuedCertificate {
            chain: field(chain)?,
            key: field(key)?,
            authority: field(authority)?,
        })
    };
    [CURRENT_KEYS, PREVIOUS_KEYS].into_iter().filter_map(pair).collect()
}

/// Whether the newest is for these names, is believed by who trusts its authority, and is not to be renewed yet.
fn is_current(stored: &[IssuedCertificate], wanted: &CertificateSpec, now: Time) -> bool {
    let Some(newest) = stored.first() else { return false };
    let trusts = CaBundle::parse(&newest.authority);
    let is_believed = |name: &String| trusts.verify(&newest.chain, name, now).is_ok();
    let Ok(validity) = Validity::from_pem(&newest.chain, CURRENT_KEYS[0]) else { return false };
    wanted.names.iter().all(is_believed) && !needs_renewal(validity, now)
}

fn unexpired(pairs: Vec<IssuedCertificate>, now: Time) -> Vec<IssuedCertificate> {
    let holds = |pair: &IssuedCertificate| {
        Validity::from_pem(&pair.chain, "a certificate")
            .is_ok_and(|validity| now <= validity.not_after)
    };
    pairs.into_iter().filter(holds).collect()
}

fn secret_data(pairs: &[IssuedCertificate]) -> BTreeMap<&'static str, ByteString> {
    let mut data = BTreeMap::new();
    let mut bundle = CaBundle::default();
    for (pair, [chain, key, authority]) in pairs.iter().zip([CURRENT_KEYS, PREVIOUS_KEYS]) {
        data.insert(chain, ByteString(pair.chain.clone()));
        data.insert(key, ByteString(pair.key.clone()));
        data.insert(authority, ByteString(pair.authority.clone()));
        bundle = bundle.union(&CaBundle::parse(&pair.authority));
    }
    data.insert(CA_BUNDLE_KEY, ByteString(bundle.to_pem()));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn secret(pairs: &[IssuedCertificate]) -> Secret {
        let data =
            secret_data(pairs).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn what_is_written_is_read_again_and_the_bundle_has_all_authorities() {
        let now = Time::from_secs(1_800_000_000);
        let wanted = CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: 9 * DAY };
        let pairs = [issue(&wanted, now).expect("made"), issue(&wanted, now).expect("made")];
        for count in 0..=2 {
            let kept = &pairs[..count];
            let secret = secret(kept);
            assert_eq!(stored_pairs(&secret), kept);
            let bundle =
                secret.data.as_ref().and_then(|data| data.get(CA_BUNDLE_KEY)).expect("a bundle");
            assert_eq!(CaBundle::parse(&bundle.0).len(), count);
        }
        let mut torn = secret(&pairs);
        torn.data.as_mut().map(|data| data.remove("tls.key"));
        assert_eq!(stored_pairs(&torn), pairs[1..], "half a pair is none");
    }

    #[test]
    fn a_certificate_is_good_while_it_has_a_third_of_its_life_left_and_is_for_all_names() {
        let now = Time::from_secs(1_800_000_000);
        let wanted = CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: 9 * DAY };
        let other = CertificateSpec {
            names: vec!["a.svc".to_owned(), "b.svc".to_owned()],
            ..wanted.clone()
        };
        let pair = issue(&wanted, now).expect("made");
        let mut mixed = pair.clone();
        mixed.authority = issue(&wanted, now).expect("made").authority;
        let mut broken = pair.clone();
        broken.chain = b"nothing".to_vec();
        let good = [pair];
        assert!(is_current(&good, &wanted, now));
        assert!(is_current(&good, &wanted, now.later(5 * DAY)));
        assert!(!is_current(&good, &wanted, now.later(7 * DAY)), "it is time for the next");
        assert!(!is_current(&good, &wanted, now.earlier(DAY)), "it does not hold yet");
        assert!(!is_current(&good, &other, now), "a name is missing");
        assert!(!is_current(&[mixed], &wanted, now) && !is_current(&[broken], &wanted, now));
        assert!(!is_current(&[], &wanted, now));
        assert_eq!(unexpired(good.to_vec(), now.later(8 * DAY)).len(), 1);
        assert_eq!(unexpired(good.to_vec(), now.later(10 * DAY)).len(), 0);
    }
}
