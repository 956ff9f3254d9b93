//! The liveness thread: leader election, heartbeats and probes run on a runtime of their own, with a client of their
//! own.
//!
//! The runtime of the controllers may be busy for as long as it takes to process the largest object that a user can
//! write. If a task of that runtime renewed the Lease, the Lease would be lost meanwhile and probes would time out:
//! the standby would take over, process the same object, and lose its Lease as well. So tasks on this thread do no
//! work whose size users control, take no lock that is held during such work, and use no connection that another
//! runtime drives.

use std::{io, sync::Arc, thread};

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use super::{client_calls::with_call_metrics, config::Address};
use crate::{
    cluster::{
        server::AdminServer,
        write::{Permit, RateLimiter},
    },
    telemetry::ApiRequestMetrics,
};

type Connect = dyn FnOnce() -> Result<Client> + Send;

/// API clients of a process: the one of the controllers, and a constructor for the one of the liveness thread.
pub struct Clients {
    pub(crate) controllers: Client,
    liveness: Box<Connect>,
}

impl Clients {
    /// `liveness` is called on the liveness runtime, since the background tasks of a client run on the runtime that
    /// creates it.
    pub fn new(
        controllers: Client,
        liveness: impl FnOnce() -> Result<Client> + Send + 'static,
    ) -> Self {
        Self { controllers, liveness: Box::new(liveness) }
    }
}

/// One client for everything: sufficient if nothing blocks its runtime.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        let liveness = client.clone();
        Self::new(client, move || Ok(liveness))
    }
}

/// Handle of the liveness thread, which stops when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Liveness(Arc<Inner>);

struct Inner {
    runtime: Handle,
    client: Client,
    _end: oneshot::Sender<()>,
}

impl Liveness {
    /// Starts the thread. Requests of its client are counted.
    pub fn start(clients: Clients, calls: ApiRequestMetrics) -> Result<(Client, Self)> {
        let Clients { controllers, liveness } = clients;
        let (runtime, shutdown_sender) =
            start_thread().context("failed to start the liveness thread")?;
        let client = {
            let _context = runtime.enter();
            with_call_metrics(liveness()?, calls)
        };
        Ok((controllers, Self(Arc::new(Inner { runtime, client, _end: shutdown_sender }))))
    }

    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// The client for liveness tasks only: its connections are driven by their runtime.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Binds a server whose connections are served on the liveness runtime.
    pub async fn bind(&self, address: &Address) -> Result<AdminServer> {
        let address = address.to_string();
        let bound = self.0.runtime.spawn(async move { AdminServer::bind(&address).await });
        Ok(bound.await.context("the liveness thread has stopped")??)
    }
}

/// A permit for heartbeats: fenced like all other writes, but not rate limited.
pub(crate) fn without_rate_limit(permit: &Permit) -> Permit {
    const NO_LIMIT: f32 = -1.0;
    Permit::new(permit.fence.clone(), RateLimiter::new(NO_LIMIT, 1))
}

fn start_thread() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (shutdown_sender, shutdown) = oneshot::channel::<()>();
    // Log to the subscriber of the caller, which may not be the global one.
    let log = tracing::dispatcher::get_default(Clone::clone);
    thread::Builder::new().name("liveness".to_owned()).spawn(move || {
        tracing::dispatcher::with_default(&log, || {
            // A dropped sender stops the runtime as well.
            let _ = runtime.block_on(shutdown);
        });
        // Do not wait for a page that is being rendered.
        runtime.shutdown_background();
    })?;
    Ok((handle, shutdown_sender))
}
