//! Certificates that change while pods are created continuously.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::Api;
use plimsoll::cluster::{
    server::certificate::{CaBundle, CertificateSpec, IssuedCertificate, issue},
    write::webhook_config::NAME,
};

use super::cluster::{
    PACED_LOAD, PodCreationLoad, configurations, start, under_load, wait_until_called,
    wait_until_ready, wait_until_served, workload,
};
use crate::{
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, clock::wall_now, skipped::report_skipped, wait},
};

#[tokio::test]
async fn expiring_certificates_are_renewed_and_every_pod_is_admitted() {
    renewed(PACED_LOAD).await;
}

#[tokio::test]
async fn with_upstreams_rbac_certificate_files_are_replaced_under_load() {
    changed(PACED_LOAD).await;
}

mod deep {
    use super::super::cluster::FULL_LOAD;

    #[tokio::test]
    async fn expiring_certificates_are_renewed_under_full_load_and_every_pod_is_admitted() {
        super::renewed(FULL_LOAD).await;
    }

    #[tokio::test]
    async fn with_upstreams_rbac_certificate_files_are_replaced_under_full_load() {
        super::changed(FULL_LOAD).await;
    }
}

/// Renews the webhook's own certificates twice.
async fn renewed(load: PodCreationLoad) {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let served = start(bed.client(), &["--webhook-failure-policy-fail"], |config| {
        config.certificates.secret.lifetime = Duration::from_secs(30);
    })
    .await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let secrets = Api::<Secret>::namespaced(bed.client(), "kube-system");
    let stored = || async {
        let secret = secrets.get_opt("plimsoll-webhook-tls").await.ok()??;
        Some((secret.data.clone()?.get("tls.crt")?.0.clone(), secret))
    };
    under_load(&bed, &namespace, &web, load, async {
        let (mut before, _) = wait::until("a certificate exists", stored).await;
        for _ in 0..2 {
            before = wait::until("another certificate exists", || async {
                let (now, secret) = stored().await?;
                let bundle = CaBundle::parse(&secret.data.as_ref()?.get("ca.crt")?.0);
                (now != before && bundle.iter().count() == 2).then_some(now)
            })
            .await;
            // The certificate is served after the API server was given its CA and had time to apply it.
            let trusts = CaBundle::parse(&before_authority(&secrets).await);
            wait_until_served(&served, &trusts).await;
        }
    })
    .await;
    served.running.stop().await;
}

async fn before_authority(secrets: &Api<Secret>) -> Vec<u8> {
    let secret = secrets.get("plimsoll-webhook-tls").await.expect("exists");
    secret
        .data
        .and_then(|data| data.get("authority.crt").map(|bytes| bytes.0.clone()))
        .expect("written")
}

/// Certificates in files, as in a mounted Secret.
struct CertificateFiles(tempfile::TempDir);

impl CertificateFiles {
    fn new(pair: &IssuedCertificate) -> Self {
        let files = Self(tempfile::tempdir().expect("temporary directory"));
        files.write(pair);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes one file after the other: a reader in between sees a certificate and a key that do not match.
    fn write(&self, pair: &IssuedCertificate) {
        let parts = [("ca", &pair.authority), ("crt", &pair.chain), ("key", &pair.key)];
        for (name, content) in parts {
            fs::write(self.path(name), content).expect("writable");
        }
    }

    fn flags(&self) -> [String; 3] {
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        [
            flag("client-ca-file", &self.path("ca")),
            flag("tls-cert-file", &self.path("crt")),
            flag("tls-private-key", &self.path("key")),
        ]
    }
}

fn on_loopback() -> IssuedCertificate {
    let wanted =
        CertificateSpec { names: vec!["127.0.0.1".to_owned()], lifetime: Duration::from_hours(1) };
    issue(&wanted, wall_now().into()).expect("created")
}

/// Replaces externally managed certificates in files.
async fn changed(load: PodCreationLoad) {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    let found =
        tokio::task::spawn_blocking(xtask::test_programs::autoscaler_crds).await.expect("no panic");
    let Ok(definitions) = found.map_err(|why| report_skipped(format!("{why:#}"))) else { return };
    let rights = fs::read_to_string(definitions.with_file_name("vpa-rbac.yaml"));
    create_definitions(&bed).await;
    grant(&bed.client(), &rights.expect("part of upstream's manifests")).await;
    let account = bed.service_account("kube-system", "vpa-admission-controller").await;
    let namespace = bed.namespace("web").await;
    let web = workload(&bed, &namespace).await;
    let (first, second) = (on_loopback(), on_loopback());
    let files = CertificateFiles::new(&first);
    let flags = files.flags();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--webhook-failure-policy-fail");
    let served = start(account.client, &flags, |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    under_load(&bed, &namespace, &web, load, async {
        files.write(&second);
        wait_until_served(&served, &CaBundle::parse(&second.authority)).await;
    })
    .await;
    // Invalid certificates are not served.
    files.write(&IssuedCertificate { key: first.key.clone(), ..second.clone() });
    let configurations = configurations(&bed);
    let registered = configurations.get(NAME).await.expect("exists");
    let bundle = registered.webhooks.unwrap_or_default().remove(0).client_config.ca_bundle;
    let bundle = CaBundle::parse(&bundle.expect("valid CA bundle").0);
    assert!(bundle.contains(&CaBundle::parse(&second.authority)));
    under_load(&bed, &namespace, &web, load, async {}).await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("the Lease is renewed", || async {
        leases.get_opt("vpa-admission-controller").await.ok()??.spec?.renew_time
    })
    .await;
    served.running.stop().await;
}
