//! Faults that every controller survives: each scenario is written once and runs for each controller.
//!
//! The process that is killed, frozen or cut off is the real binary; its requests go through a `HoldingProxy`, which
//! determines where. Faults that only one controller has are tested with that controller.

mod admission;
mod api_server_outage;
mod crashes;
mod former_leader;
mod horizontal;
mod recommender;
mod replicas;
mod standby;
mod updater;
mod watermark;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        holding_proxy::{HeldMoment, HoldPoint, HoldingProxy, RoleWrite},
        role_process::RoleProcess,
        wait,
    },
};

/// A controller that has work to do, in a namespace of its own.
trait FaultSubject: Sized {
    /// Its subcommand.
    const ROLE: &str;
    /// Its Lease; `None` if every replica writes.
    const LEASE: Option<&str>;
    /// The flags for a single replica without a Lease.
    const WITHOUT_LEASE: &[&str];
    /// The write that does its work.
    const ACTION: RoleWrite;
    /// How many of them its work takes; `None` if it may take any number, because repeating one changes nothing.
    const ACTIONS: Option<usize>;
    /// The points at which it crashes, one after the other.
    const CRASHES: &[HeldMoment];
    /// How many actions a crash at each of these points leaves recorded but not made.
    const UNMADE_AFTER_CRASHES: usize = 0;
    /// The point at which the API server goes away, and how many of these writes it gets before.
    const OUTAGE: (usize, HeldMoment) = (0, (Self::ACTION, HoldPoint::Request));
    /// Whether an outage lasts until it loses its Lease.
    const OUTAGE_OUTLASTS_LEASE: bool = Self::LEASE.is_some();
    /// The words of the lines that it logs during an outage.
    const OUTAGE_LOG: &[&[&str]] = &[];
    /// Metrics that only the leader exports.
    const LEADER_METRICS: &[&str] = &[];

    /// Creates its work on the shared testbed, or on a private one for a scenario that breaks the API server. `None` after
    /// reporting what is missing on this machine.
    async fn new(name: &str, private: bool) -> Option<Self>;

    fn bed(&self) -> &Testbed;

    fn namespace(&self) -> &str;

    /// Flags that limit it to its namespace and make it work as often as possible, with metrics and probes on this port.
    fn flags(&self, port: u16) -> Vec<String>;

    /// Gives it more to do, if its work ends otherwise.
    fn add_work(&self) {}

    /// Waits while there is no API server until its loop has made progress, if it shows that.
    async fn wait_during_outage(&self, _process: &RoleProcess) {}

    /// Waits until the work is done but for this many actions, and asserts that nothing was lost and nothing made twice.
    async fn assert_done_once(&self, process: &RoleProcess, unmade: usize);
}

/// The shared testbed or a private one, and a namespace for the work.
async fn testbed_and_namespace(name: &str, private: bool) -> Option<(Testbed, String)> {
    let bed = if private { Testbed::private().await } else { Testbed::shared().await };
    let bed = bed.filter(Testbed::has_controllers)?;
    if private {
        bed.nodes().add("node", "64", "256Gi").await;
    }
    create_definitions(&bed).await;
    let namespace = bed.namespace(name).await;
    Some((bed, namespace))
}

/// Starts a process behind a proxy, with a name that may be used again after its end.
fn start<S: FaultSubject>(
    subject: &S,
    name: &str,
    proxy: &HoldingProxy,
    more: &[&str],
) -> RoleProcess {
    let name = format!("{name}-of-{}", subject.namespace());
    let environment = [("WATCH_NAMESPACE", subject.namespace())];
    RoleProcess::start(subject.bed(), &name, &environment, |port| {
        let mut arguments = vec![S::ROLE.to_owned()];
        arguments.extend(subject.flags(port));
        arguments.extend(more.iter().map(ToString::to_string));
        arguments.push(format!("--kubeconfig={}", proxy.kubeconfig().display()));
        arguments
    })
}

/// Starts a proxy with a name that is unique among the proxies of the subject.
async fn proxy<S: FaultSubject>(subject: &S, name: &str) -> HoldingProxy {
    HoldingProxy::start(subject.bed(), &format!("{name}-proxy-of-{}", subject.namespace())).await
}

/// Waits until the work is done, and asserts that all processes together have made each action once.
async fn assert_done_once<S: FaultSubject>(
    subject: &S,
    process: &RoleProcess,
    proxies: &[&HoldingProxy],
    unmade: usize,
) {
    subject.assert_done_once(process, unmade).await;
    let Some(actions) = S::ACTIONS else { return };
    let mut made: Vec<String> =
        proxies.iter().flat_map(|proxy| proxy.completed_paths(S::ACTION)).collect();
    assert_eq!(made.len(), actions - unmade, "{made:?}");
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len(), actions - unmade, "each is for another object: {made:?}");
}

/// Asserts that its loops make progress, and that it is ready.
async fn assert_probes_succeed(process: &RoleProcess) {
    let alive = process.get("livez").await.expect("response");
    assert_eq!(&*alive, b"ok\n");
    process.wait_until_ready().await;
}

/// The holder of the Lease, as soon as there is one.
async fn holder<S: FaultSubject>(subject: &S) -> String {
    let leases = Api::<Lease>::namespaced(subject.bed().client(), subject.namespace());
    wait::until("a replica leads", || async {
        let lease = leases.get(S::LEASE?).await.ok()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    })
    .await
}

async fn wait_for_other_holder<S: FaultSubject>(subject: &S, before: &str) -> String {
    wait::until("another replica leads", || async {
        let now = holder(subject).await;
        (now != before).then_some(now)
    })
    .await
}
