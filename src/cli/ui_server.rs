//! Starts the server of `plimsoll ui`, alone or with controllers in one process.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use plimsoll_core::types::compat::Compat;
use tokio::time::sleep;

use super::{output::CliError, recommend_options::RecommendCommand};
use crate::{
    cluster::{
        clock::Clock,
        server::{
            Listener, serve_pages,
            web::web_tls,
            webhook::{ReloadableCertificate, certified_key},
        },
    },
    controllers::{
        UpdaterConfig,
        runtime::{
            command_client::{ClusterOptions, load_connection},
            config::{Address, ProcessConfig},
            shutdown::TaskGroup,
        },
    },
    ui::{
        reader::{Reader, ReaderConfig},
        server::{UiServer, UiServerConfig},
    },
};

/// How often the files of the certificate are read.
const CERTIFICATE_INTERVAL: Duration = Duration::from_mins(1);

pub(super) struct UiCommand {
    pub address: Address,
    pub cluster: ClusterOptions,
    pub server: UiServerConfig,
    pub reader: ReaderConfig,
    pub recommend: RecommendCommand,
    pub certificate: Option<(PathBuf, PathBuf)>,
    pub proxy_authorities: Option<PathBuf>,
    pub compat: Compat,
    pub process: ProcessConfig,
}

impl UiCommand {
    /// Reads the files that flags name.
    pub fn read_files(&mut self) -> Result<(), CliError> {
        self.recommend.read_files()?;
        self.reader.recommend = self.recommend.config.clone();
        Ok(())
    }

    /// Previews the decisions of an updater with its own flags.
    pub fn preview_updater(&mut self, updater: &UpdaterConfig) {
        let pods = &mut self.reader.pods;
        pods.settings = updater.settings.clone();
        pods.native_sidecars = updater.native_sidecars;
        pods.limit_policy = updater.limit_policy;
        pods.admission_check.clone_from(&updater.admission_check);
        pods.heartbeat_namespace.clone_from(&updater.heartbeat_namespace);
        pods.retarget_hpas = updater.retarget_hpas;
        pods.horizontal_lease_namespace.clone_from(&updater.horizontal_lease_namespace);
        pods.lease_namespace.clone_from(&updater.election.namespace);
        pods.lease_name.clone_from(&updater.election.name);
    }
}

pub(super) struct UiHandle {
    /// Where the page is.
    pub url: String,
    tasks: TaskGroup,
}

impl UiHandle {
    /// Finishes the requests in progress.
    pub async fn stop(mut self) {
        self.tasks.shut_down().await;
    }
}

pub(super) async fn start(command: UiCommand, clock: Clock) -> anyhow::Result<UiHandle> {
    let connection = load_connection(&command.cluster, "plimsoll-ui").await?;
    let listener = Listener::bind(&command.address.to_string(), "--address").await?;
    let address = listener.address;
    if command.server.is_loopback && !address.ip().is_loopback() {
        anyhow::bail!("--address={}: not a loopback address", command.address);
    }
    let certificate = Arc::new(ReloadableCertificate::default());
    let tls = match &command.certificate {
        None => None,
        Some(files) => {
            certificate.set(read_certificate(files)?);
            let authorities = command.proxy_authorities.as_ref();
            let authorities = authorities.map(|path| {
                std::fs::read(path).with_context(|| format!("--proxy-ca-file={}", path.display()))
            });
            let authorities = authorities.transpose()?;
            Some(web_tls(Arc::clone(&certificate), authorities.as_deref())?)
        }
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}{}/", command.server.base_path);
    let reader = Reader::new(command.reader, connection, clock)?;
    let mut tasks = TaskGroup::default();
    reader.start(&mut tasks);
    if let Some(files) = command.certificate {
        tasks.spawn_cancellable(reload_certificate(files, certificate));
    }
    let source = Arc::clone(&reader);
    let handler = Arc::new(UiServer::new(command.server, source, reader));
    tasks.spawn(|stop| async move { serve_pages(listener, tls, handler, stop.cancelled()).await });
    Ok(UiHandle { url, tasks })
}

fn read_certificate(
    (chain, key): &(PathBuf, PathBuf),
) -> anyhow::Result<rustls::sign::CertifiedKey> {
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
    Ok(certified_key(&read(chain)?, &read(key)?)?)
}

/// Replaces the certificate when its files change. If they cannot be read, the last one stays.
async fn reload_certificate(files: (PathBuf, PathBuf), certificate: Arc<ReloadableCertificate>) {
    loop {
        sleep(CERTIFICATE_INTERVAL).await;
        match read_certificate(&files) {
            Ok(read) => certificate.set(read),
            Err(error) => tracing::warn!(%error, "failed to read the certificate of the page"),
        }
    }
}
