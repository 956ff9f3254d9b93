//! The certificate that the webhook serves: read from files or issued here. A new one is served only after API servers
//! have had time to pick up its CA.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::types::{Time, compat::Compat};

use super::config::{AdmissionConfig, CertificateFiles, CertificateSource};
use crate::{
    cluster::{
        server::{
            certificate::{
                CaBundle, Candidate, CertificateSpec, IssuedCertificate, Validity,
                select_certificate,
            },
            webhook::{ReloadableCertificate, certified_key},
        },
        write::{
            CertificateSecret, Permit, WebhookConfigWriter,
            webhook_config::{WebhookChange, WebhookScope},
        },
    },
    telemetry::AdmissionMetrics,
};

/// How long CAs of others stay in the webhook configuration after this process first saw them: replicas that still
/// serve the old certificate must be trusted until they switch to the new one.
const FOREIGN_CA_RETENTION: Duration = Duration::from_hours(1);
/// After the initial registration only the CA bundle is repaired, and only after it was wrong for this long: another
/// replica may just be ahead.
const REGISTRATION_REPAIR_DELAY: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Certificates(Mutex<CertificateState>);

#[derive(Debug, Default)]
pub(super) struct CertificateState {
    /// Certificates, newest first; usually at most two.
    pairs: Vec<TrackedPair>,
    /// The one being served, with its CA.
    pub serving: Option<IssuedCertificate>,
    /// The CA bundle of the webhook configuration when it was last read.
    pub registered: Option<CaBundle>,
    /// Our CAs that were in the webhook configuration at some time.
    once_registered: CaBundle,
    /// Since when the CA bundle of the webhook configuration lacks our CAs.
    wrong_since: Option<Instant>,
    /// Our CAs whose certificates are no longer served.
    retired: CaBundle,
    /// CAs of others that were in the webhook configuration before ours, with the time when they were first seen.
    foreign: Vec<(CaBundle, Instant)>,
    /// Whether the webhook configuration was ever reconciled.
    pub was_registered: bool,
    /// The last error, to log each error only once.
    pub last_error: Option<String>,
}

#[derive(Clone, Debug)]
struct TrackedPair {
    pair: IssuedCertificate,
    validity: Validity,
    found_at: Instant,
    /// Since when the webhook configuration contains its CA.
    trusted_since: Option<Instant>,
}

impl Certificates {
    pub fn lock(&self) -> MutexGuard<'_, CertificateState> {
        self.0.lock()
    }

    /// Adds a certificate as the newest. A known one becomes the newest again.
    fn add_pair(&self, pair: IssuedCertificate) -> Result<(), String> {
        certified_key(&pair.chain, &pair.key).map_err(|error| error.to_string())?;
        let validity = Validity::from_pem(&pair.chain, "the certificate");
        let validity = validity.map_err(|error| error.to_string())?;
        let mut state = self.lock();
        if let Some(index) = state.pairs.iter().position(|tracked| tracked.pair == pair) {
            // Going back to an earlier certificate is intentional.
            let tracked = state.pairs.remove(index);
            state.pairs.insert(0, tracked);
        } else {
            state.pairs.insert(
                0,
                TrackedPair { pair, validity, found_at: Instant::now(), trusted_since: None },
            );
        }
        // Keep the served certificate, however many newer ones arrived.
        let serving = state.serving.clone();
        let mut position = 0;
        state.pairs.retain(|tracked| {
            position += 1;
            position <= 2 || serving.as_ref() == Some(&tracked.pair)
        });
        Ok(())
    }

    /// The CAs of the certificates that are or will be served. Without `keep_previous`, a CA of an older certificate
    /// is dropped after a while, where it is not known whether other replicas still serve it.
    fn own_ca_bundle(&self, keep_previous: bool, now: Time) -> CaBundle {
        let mut state = self.lock();
        let newest = state.pairs.first().map(|tracked| tracked.pair.clone());
        state.pairs.retain(|tracked| {
            now <= tracked.validity.not_after || newest.as_ref() == Some(&tracked.pair)
        });
        let is_new = state
            .pairs
            .first()
            .is_some_and(|tracked| tracked.found_at.elapsed() < FOREIGN_CA_RETENTION);
        if !keep_previous && !is_new {
            state.pairs.truncate(1);
        }
        let authorities = |pairs: &[TrackedPair]| {
            pairs.iter().fold(CaBundle::default(), |bundle, tracked| {
                bundle.union(&CaBundle::parse(&tracked.pair.authority))
            })
        };
        let ours = authorities(&state.pairs);
        let retired = state.retired.clone().union(&state.once_registered);
        state.retired = retired.difference(&ours);
        ours
    }
}

impl CertificateState {
    /// Our CAs and those of others. CAs of others that were there before ours are dropped after a while; those added
    /// later are kept, since another replica is ahead. Our own CAs are dropped with their certificates.
    fn desired_ca_bundle(
        &self,
        ours: &CaBundle,
        registered: &CaBundle,
        now: Instant,
        time: Time,
    ) -> CaBundle {
        let others = registered.clone().unexpired(time);
        let is_obsolete = |authority: &CaBundle| {
            let first_seen = self.foreign.iter().find(|(known, _)| known == authority);
            let expired = first_seen
                .is_some_and(|(_, since)| now.duration_since(*since) >= FOREIGN_CA_RETENTION);
            expired || self.retired.contains(authority)
        };
        let kept = others.iter().filter(|authority| !is_obsolete(authority));
        kept.fold(ours.clone(), |bundle, authority| bundle.union(&authority))
    }

    /// Records CAs of others that were in the webhook configuration before ours.
    fn record_foreign_authorities(&mut self, ours: &CaBundle, registered: &CaBundle, now: Instant) {
        if !self.once_registered.contains(ours) {
            for authority in registered.iter().filter(|authority| !ours.contains(authority)) {
                if !self.foreign.iter().any(|(known, _)| *known == authority) {
                    self.foreign.push((authority, now));
                }
            }
        }
        self.foreign.retain(|(known, _)| registered.contains(known) && !ours.contains(known));
    }
}

/// Keeps the certificate and the webhook configuration up to date.
pub(super) struct CertificateReconciler {
    pub config: Arc<AdmissionConfig>,
    pub source: CertificateSource,
    pub secret: CertificateSecret,
    pub registration: Option<WebhookConfigWriter>,
    pub permit: Permit,
    pub certificates: Arc<Certificates>,
    pub keyring: Arc<ReloadableCertificate>,
    pub metrics: AdmissionMetrics,
}

impl CertificateReconciler {
    /// Loads certificates, reconciles the webhook configuration, and updates the served certificate. Runs at startup
    /// and then periodically.
    pub async fn reconcile(&self, now: Time) {
        let loaded = match self.source {
            CertificateSource::Mounted => self.reload_files(now),
            CertificateSource::SelfSigned => self.reconcile_secret(now).await,
        };
        // A certificate must be served before the webhook is registered.
        self.update_serving_pair(now);
        let registered = self.reconcile_registration(now).await;
        self.update_serving_pair(now);
        let error = loaded.and(registered).err();
        let mut state = self.certificates.lock();
        if state.last_error != error {
            if let Some(message) = &error {
                tracing::warn!(error = %message, "failed to update certificates or webhook configuration");
            } else {
                tracing::info!("certificates and webhook configuration are up to date again");
            }
            state.last_error = error;
        }
    }

    fn reload_files(&self, now: Time) -> Result<(), String> {
        let files = &self.config.certificates.files;
        if !files.reload && !self.certificates.lock().pairs.is_empty() {
            return Ok(());
        }
        let pair = read_files(files)?;
        let newest = self.certificates.lock().pairs.first().map(|tracked| tracked.pair.clone());
        if newest.as_ref() == Some(&pair) {
            return Ok(());
        }
        // Files are replaced one after the other: a mismatch is usually temporary.
        let own = CaBundle::parse(&pair.authority);
        if newest.is_some() && !own.is_empty() {
            let verified = own.verify(&pair.chain, self.config.server_name(), now);
            verified.map_err(|error| {
                self.metrics.count_certificate_rejected();
                let (authority, chain) = (files.authority.display(), files.certificate.display());
                format!(
                    "{authority} does not verify {chain}: {error}; still serving the previous certificate"
                )
            })?;
        }
        self.certificates.add_pair(pair).map_err(|error| {
            self.metrics.count_certificate_rejected();
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("{certificate} and {key}: {error}; still serving the previous certificate")
        })
    }

    async fn reconcile_secret(&self, now: Time) -> Result<(), String> {
        let secret = &self.config.certificates.secret;
        let spec =
            CertificateSpec { names: self.config.server_names.clone(), lifetime: secret.lifetime };
        let stored = self.secret.ensure(&self.permit, &spec, now).await;
        let stored = stored.map_err(|error| self.secret.describe(&error))?;
        if stored.was_renewed {
            let (namespace, name) = (&secret.namespace, &secret.name);
            tracing::info!(namespace, name, "issued a new certificate and stored it in a Secret");
        }
        for pair in stored.pairs.into_iter().rev() {
            self.certificates
                .add_pair(pair)
                .inspect_err(|_| self.metrics.count_certificate_rejected())?;
        }
        Ok(())
    }

    async fn reconcile_registration(&self, now: Time) -> Result<(), String> {
        let Some(registration) = &self.registration else {
            // The webhook is registered by someone else, who is responsible for its CA bundle.
            let long_ago =
                Instant::now().checked_sub(self.config.certificates.ca_propagation_delay);
            for tracked in &mut self.certificates.lock().pairs {
                tracked.trusted_since = tracked.trusted_since.or(long_ago);
            }
            return Ok(());
        };
        let ours =
            self.certificates.own_ca_bundle(self.source == CertificateSource::SelfSigned, now);
        if self.certificates.lock().serving.is_none() {
            return Err("cannot register the webhook: no certificate yet".to_owned());
        }
        let instant = Instant::now();
        let (scope, wait_for_others) = {
            let state = self.certificates.lock();
            let wrong_for = state.wrong_since.map_or(Duration::ZERO, |since| instant - since);
            let scope =
                if state.was_registered { WebhookScope::CaBundle } else { WebhookScope::Full };
            // New CAs of ours are added at once. If others removed a CA, they may be about to add it back.
            let was_in_bundle = state.once_registered.contains(&ours);
            (scope, state.was_registered && was_in_bundle && wrong_for < REGISTRATION_REPAIR_DELAY)
        };
        let desired_bundle = |registered: &CaBundle| {
            let mut state = self.certificates.lock();
            state.record_foreign_authorities(&ours, registered, instant);
            if wait_for_others && !registered.is_empty() && !registered.contains(&ours) {
                state.wrong_since.get_or_insert(instant);
                return registered.clone();
            }
            match self.config.compat {
                Compat::Upstream => ours.clone(),
                Compat::Plimsoll => state.desired_ca_bundle(&ours, registered, instant, now),
            }
        };
        let registered = registration.ensure(&self.permit, scope, &desired_bundle).await;
        let registered = registered.map_err(|error| {
            self.certificates.lock().registered = None;
            registration.describe(&error)
        })?;
        match registered.change {
            WebhookChange::None => {}
            WebhookChange::Created => tracing::info!("created webhook configuration"),
            WebhookChange::Patched => {
                tracing::info!("updated webhook configuration");
            }
        }
        let mut state = self.certificates.lock();
        state.was_registered = true;
        if registered.ca_bundle.contains(&ours) {
            state.wrong_since = None;
            state.once_registered = ours;
        }
        let name = self.config.server_name();
        for tracked in &mut state.pairs {
            let trusted = registered.ca_bundle.verify(&tracked.pair.chain, name, now);
            tracked.trusted_since =
                trusted.is_ok().then(|| tracked.trusted_since.unwrap_or(instant));
        }
        state.registered = Some(registered.ca_bundle);
        Ok(())
    }

    fn update_serving_pair(&self, now: Time) {
        let settle = self.config.certificates.ca_propagation_delay;
        let mut state = self.certificates.lock();
        let candidates: Vec<Candidate> = state
            .pairs
            .iter()
            .map(|tracked| Candidate {
                validity: tracked.validity,
                trusted_for: tracked.trusted_since.map(|since| since.elapsed()),
            })
            .collect();
        let Some(index) = select_certificate(&candidates, now, settle) else { return };
        let TrackedPair { pair, validity, .. } = state.pairs[index].clone();
        if state.serving.as_ref() == Some(&pair) {
            return;
        }
        match certified_key(&pair.chain, &pair.key) {
            Ok(key) => {
                self.keyring.set(key);
                self.metrics.set_certificate_expiry(validity.not_after);
                tracing::info!(until = %validity.not_after, "serving a new certificate");
                state.serving = Some(pair);
            }
            Err(error) => {
                tracing::error!(%error, "failed to load a certificate that passed validation");
            }
        }
    }
}

/// Reads the certificate files. The CA file is optional: the webhook may be registered by someone else.
pub(super) fn read_files(files: &CertificateFiles) -> Result<IssuedCertificate, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    Ok(IssuedCertificate {
        chain: read(&files.certificate)?,
        key: read(&files.key)?,
        authority: fs::read(&files.authority).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::issue;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn pair() -> IssuedCertificate {
        let spec =
            CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: Duration::from_hours(10) };
        issue(&spec, NOW).expect("made")
    }

    fn authority() -> CaBundle {
        CaBundle::parse(&pair().authority)
    }

    #[test]
    fn a_foreign_ca_is_removed_after_its_retention_time_and_a_newer_one_stays() {
        let (ours, before, later) = (authority(), authority(), authority());
        let mut state = CertificateState::default();
        let start = Instant::now();
        state.record_foreign_authorities(&ours, &before, start);
        let both = ours.clone().union(&before);
        assert_eq!(
            state.desired_ca_bundle(&ours, &before, start, NOW),
            both,
            "others still serve it"
        );
        assert_eq!(state.desired_ca_bundle(&ours, &both, start + FOREIGN_CA_RETENTION, NOW), ours);
        let end = NOW.later(Duration::from_hours(11));
        assert_eq!(state.desired_ca_bundle(&ours, &before, start, end), ours, "it has expired");

        state.once_registered = ours.clone();
        let both = ours.clone().union(&later);
        state.record_foreign_authorities(&ours, &both, start);
        assert_eq!(
            state.desired_ca_bundle(&ours, &both, start + FOREIGN_CA_RETENTION, NOW),
            both,
            "a replica is ahead"
        );
        state.retired = later;
        assert_eq!(
            state.desired_ca_bundle(&ours, &both, start, NOW),
            ours,
            "it was ours and is retired"
        );
    }

    #[test]
    fn the_two_newest_certificates_and_the_served_one_are_kept() {
        let certificates = Certificates::default();
        let pairs: Vec<IssuedCertificate> = (0..4).map(|_| pair()).collect();
        certificates.add_pair(pairs[0].clone()).expect("is fine");
        certificates.lock().serving = Some(pairs[0].clone());
        for pair in &pairs[1..] {
            certificates.add_pair(pair.clone()).expect("is fine");
        }
        let held = || -> Vec<IssuedCertificate> {
            certificates.lock().pairs.iter().map(|tracked| tracked.pair.clone()).collect()
        };
        assert_eq!(held(), [pairs[3].clone(), pairs[2].clone(), pairs[0].clone()]);
        assert_eq!(certificates.own_ca_bundle(true, NOW).authorities.len(), 3);
        certificates.add_pair(pairs[2].clone()).expect("is fine");
        assert_eq!(held(), [pairs[2].clone(), pairs[3].clone(), pairs[0].clone()], "back again");
        let mixed = IssuedCertificate { key: pairs[1].key.clone(), ..pairs[0].clone() };
        certificates.add_pair(mixed).expect_err("they do not belong together");
        let late = NOW.later(Duration::from_hours(11));
        assert_eq!(
            certificates.own_ca_bundle(true, late).authorities.len(),
            1,
            "the newest, though all have expired"
        );
    }
}
