//! The network from the API server to Services. On a single machine no process has the address of a Service, so the
//! API server uses this as an egress proxy, as in clusters whose nodes it cannot reach.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::hollow_nodes::{NodeView, is_ready};
use super::testbed::{self, Testbed};

/// The variable in which a process received the port that its container declares; see
/// [`VariableValue`](super::hollow_nodes::VariableValue).
pub type PortVariableLookup = fn(i32) -> Option<&'static str>;

/// The start of the addresses of pods that are servers of a test, on the same port of this machine: an Endpoints object must
/// not contain an address of loopback.
pub const LOCAL_PODS: &str = "10.99.";

/// The network of one testbed.
pub struct ServiceNetwork {
    folder: TempDir,
    known: Arc<OnceLock<NetworkView>>,
    serving: JoinHandle<()>,
}

struct NetworkView {
    client: Client,
    nodes: NodeView,
    variable: PortVariableLookup,
}

// === impl ServiceNetwork ===

impl ServiceNetwork {
    /// A network without a testbed. It is created first, because the API server is started with it.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let known = Arc::new(OnceLock::new());
        let place = socket(folder.path());
        let selection = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\n\
             kind: EgressSelectorConfiguration\n\
             egressSelections:\n\
             - name: cluster\n  \
               connection:\n    \
                 proxyProtocol: HTTPConnect\n    \
                 transport: {{uds: {{udsName: '{}'}}}}\n",
            place.display()
        );
        std::fs::write(folder.path().join("egress.yaml"), selection).expect("writable");
        let leads = Arc::clone(&known);
        let serving = testbed::spawn(async move {
            let listener = UnixListener::bind(place).expect("a socket in a new folder");
            while let Ok((caller, _)) = listener.accept().await {
                let known = Arc::clone(&leads);
                tokio::spawn(async move {
                    // The caller notices: the connection is closed.
                    let _ = forward(caller, known.get()).await;
                });
            }
        });
        Self { folder, known, serving }
    }

    /// The API server flag that routes traffic through this network.
    pub fn egress_selector_flag(&self) -> String {
        format!(
            "--egress-selector-config-file={}",
            self.folder.path().join("egress.yaml").display()
        )
    }

    /// Routes to the Services of this testbed from now on. `variable` returns in which variable processes received
    /// their ports.
    pub async fn route_to(&self, bed: &Testbed, variable: PortVariableLookup) {
        // A client belongs to the runtime on which it was created.
        let path = bed.kubeconfig_path();
        let client = testbed::on_runtime(async move {
            let text = std::fs::read_to_string(path).expect("the testbed has one");
            super::control_plane::client(&text).await
        })
        .await;
        let known = NetworkView { client, nodes: bed.nodes().view(), variable };
        assert!(self.known.set(known).is_ok(), "a network belongs to one testbed");
    }
}

impl Drop for ServiceNetwork {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("network")
}

/// Connects a caller to the address that it requested.
async fn forward(caller: UnixStream, known: Option<&NetworkView>) -> Result<()> {
    let mut caller = BufReader::new(caller);
    let mut request = String::new();
    caller.read_line(&mut request).await?;
    loop {
        let mut header = String::new();
        if caller.read_line(&mut header).await? == 0 || header.trim().is_empty() {
            break;
        }
    }
    let wanted = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let found = match wanted {
        Some(wanted) => resolve(wanted, known).await,
        None => bail!("not a CONNECT: {request}"),
    };
    let mut there = match found {
        Ok(address) => TcpStream::connect(address).await?,
        Err(why) => {
            let answer = format!("HTTP/1.1 502 {why:#}\r\n\r\n");
            caller.get_mut().write_all(answer.as_bytes()).await?;
            return Ok(());
        }
    };
    caller.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut caller, &mut there).await?;
    Ok(())
}

/// Resolves `HOST:PORT`: names and pods of this machine, or the address of a Service to one of its pods.
async fn resolve(wanted: &str, known: Option<&NetworkView>) -> Result<SocketAddr> {
    let (host, port) = wanted.rsplit_once(':').context("no port")?;
    let port: u16 = port.parse()?;
    if matches!(host, "localhost" | "127.0.0.1") || host.starts_with(LOCAL_PODS) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let known = known.context("the testbed is not known yet")?;
    let services = Api::<Service>::all(known.client.clone());
    let services = services.list(&ListParams::default()).await?;
    let is_it = |service: &&Service| {
        service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some(host)
    };
    let service = services.items.iter().find(is_it).context("no Service has that address")?;
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    let one = ports.iter().find(|one| one.port == i32::from(port)).context("not its port")?;
    let target = one.target_port.clone().unwrap_or(IntOrString::Int(one.port));
    let selector = spec.selector.context("it selects nothing")?;
    let words: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods =
        Api::<Pod>::namespaced(known.client.clone(), &service.namespace().unwrap_or_default());
    let pods = pods.list(&ListParams::default().labels(&words.join(","))).await?;
    for pod in pods.items.iter().filter(|pod| is_ready(pod)) {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let Some(number) = container_port(container, &target) else { continue };
            let variable = (known.variable)(number).unwrap_or_default();
            if let Some(port) = known.nodes.port(pod, &container.name, variable) {
                return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
            }
        }
    }
    bail!("no pod of the Service is ready")
}

/// The number of a container port.
fn container_port(container: &Container, target: &IntOrString) -> Option<i32> {
    match target {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    }
}
