//! The webhook's self-signed certificates, in a Secret that all replicas share: issued if there are none, and renewed before
//! they expire. The previous certificate and its CA stay until it expires, because clients do not all switch to the new one
//! at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Client,
    api::{Api, Patch},
};
use plimsoll_core::types::Time;
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::cluster::{
    server::certificate::{
        CaBundle, CertificateSpec, IssuedCertificate, Validity, issue, rotation::needs_renewal,
    },
    write::{WriteError, WriteStats, object_client::ObjectClient, stats::WriteKind},
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Number of attempts when other clients write the Secret at the same time.
const TRIES: usize = 5;
/// The newest certificate, its key and its CA; the first two have the usual names of TLS Secrets.
const CURRENT_KEYS: [&str; 3] = ["tls.crt", "tls.key", "authority.crt"];
const PREVIOUS_KEYS: [&str; 3] = ["previous.crt", "previous.key", "previous-authority.crt"];
/// All CA certificates, for users who register the webhook by other means.
const CA_BUNDLE_KEY: &str = "ca.crt";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificates {
    /// One or two certificates, the newest first.
    pub pairs: Vec<IssuedCertificate>,
    pub was_renewed: bool,
}

#[derive(Debug)]
pub struct CertificateSecret(ObjectClient<Secret>);

impl CertificateSecret {
    pub fn new(client: Client, namespace: &str, name: &str, stats: Arc<WriteStats>) -> Self {
        let secrets = Api::namespaced(client, namespace);
        Self(ObjectClient::new(secrets, name, WriteKind::Certificate, REQUEST_LIMIT, stats))
    }

    /// Reads the certificates, and renews them if they are due.
    pub async fn ensure(
        &self,
        permit: &dyn WritePermit,
        spec: &CertificateSpec,
        now: Time,
    ) -> Result<StoredCertificates, WriteError> {
        for _ in 0..TRIES {
            let read = self.0.get().await?;
            let stored = read.as_ref().map(stored_pairs).unwrap_or_default();
            if read.is_some() && is_current(&stored, spec, now) {
                return Ok(StoredCertificates {
                    pairs: unexpired(stored, now),
                    was_renewed: false,
                });
            }
            let mut pairs = vec![issue(spec, now).map_err(WriteError::malformed)?];
            pairs.extend(unexpired(stored, now).into_iter().take(1));
            let written = match &read {
                None => self.create(permit, &pairs).await?,
                Some(current) => self.patch(permit, current, &pairs).await?,
            };
            if written {
                return Ok(StoredCertificates { pairs, was_renewed: true });
            }
        }
        Err(WriteError::Conflict("other clients changed it all the time".to_owned()))
    }

    /// `false` if another client created it first.
    async fn create(
        &self,
        permit: &dyn WritePermit,
        pairs: &[IssuedCertificate],
    ) -> Result<bool, WriteError> {
        let data = secret_data(pairs).into_iter().map(|(key, value)| (key.to_owned(), value));
        let secret = Secret {
            metadata: self.0.metadata(),
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.collect()),
            ..Secret::default()
        };
        self.0.ensure_can_create().await?;
        permit.acquire().await?;
        is_written(self.0.create(&secret).await)
    }

    /// `false` if another client changed it first.
    async fn patch(
        &self,
        permit: &dyn WritePermit,
        current: &Secret,
        pairs: &[IssuedCertificate],
    ) -> Result<bool, WriteError> {
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let mut fields = json!(secret_data(pairs));
        if pairs.len() < 2 {
            for key in PREVIOUS_KEYS {
                fields[key] = json!(null);
            }
        }
        let patch = json!({"metadata": {"resourceVersion": version}, "data": fields});
        permit.acquire().await?;
        is_written(self.0.patch(&Patch::Merge(patch)).await)
    }

    /// The error of [`Self::ensure`] in one line, with what to do about it.
    pub fn describe(&self, error: &WriteError) -> String {
        let hint = self.0.access_hint(error, "mount certificates (--tls-cert-file)");
        let secret = &self.0;
        format!(
            "failed to read or write Secret {secret} with the webhook's certificate: {error}{hint}"
        )
    }
}

/// Whether an object was written; not if another client was faster.
fn is_written<T>(result: Result<T, WriteError>) -> Result<bool, WriteError> {
    match result {
        Ok(_) => Ok(true),
        Err(WriteError::NotFound | WriteError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The certificates in a Secret, the newest first. Incomplete ones are skipped.
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

/// Whether the newest certificate is valid for all names under its CA, and need not be renewed yet.
fn is_current(stored: &[IssuedCertificate], spec: &CertificateSpec, now: Time) -> bool {
    let Some(newest) = stored.first() else { return false };
    let ca_bundle = CaBundle::parse(&newest.authority);
    let is_valid_for = |name: &String| ca_bundle.verify(&newest.chain, name, now).is_ok();
    let Ok(validity) = Validity::from_pem(&newest.chain, CURRENT_KEYS[0]) else { return false };
    spec.names.iter().all(is_valid_for) && !needs_renewal(validity, now)
}

fn unexpired(pairs: Vec<IssuedCertificate>, now: Time) -> Vec<IssuedCertificate> {
    let is_unexpired = |pair: &IssuedCertificate| {
        Validity::from_pem(&pair.chain, "a certificate")
            .is_ok_and(|validity| now <= validity.not_after)
    };
    pairs.into_iter().filter(is_unexpired).collect()
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
    fn stored_certificates_read_back_and_the_bundle_has_all_cas() {
        let now = Time::from_secs(1_800_000_000);
        let wanted = CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: 9 * DAY };
        let pairs = [issue(&wanted, now).expect("issued"), issue(&wanted, now).expect("issued")];
        for count in 0..=2 {
            let expected = &pairs[..count];
            let secret = secret(expected);
            assert_eq!(stored_pairs(&secret), expected);
            let bundle =
                secret.data.as_ref().and_then(|data| data.get(CA_BUNDLE_KEY)).expect("a bundle");
            assert_eq!(CaBundle::parse(&bundle.0).authorities.len(), count);
        }
        let mut torn = secret(&pairs);
        torn.data.as_mut().map(|data| data.remove("tls.key"));
        assert_eq!(stored_pairs(&torn), pairs[1..], "an incomplete certificate is skipped");
    }

    #[test]
    fn a_certificate_is_current_for_two_thirds_of_its_lifetime_and_with_all_names() {
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
        assert!(!is_current(&good, &wanted, now.later(7 * DAY)), "renewal is due");
        assert!(!is_current(&good, &wanted, now.earlier(DAY)), "it is not valid yet");
        assert!(!is_current(&good, &other, now), "a name is missing");
        assert!(!is_current(&[mixed], &wanted, now) && !is_current(&[broken], &wanted, now));
        assert!(!is_current(&[], &wanted, now));
        assert_eq!(unexpired(good.to_vec(), now.later(8 * DAY)).len(), 1);
        assert_eq!(unexpired(good.to_vec(), now.later(10 * DAY)).len(), 0);
    }
}
