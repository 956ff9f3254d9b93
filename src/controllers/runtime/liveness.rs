//! The thread that keeps a process alive in the eyes of others: elections, heartbeats and probes run on a runtime of their
//! own, with a client of their own.
//!
//! The runtime of the controllers may be busy for as long as the largest object takes that a user can write. A Lease that is
//! renewed by a task of that runtime would be lost meanwhile, and a probe would not be answered: the standby takes over, works
//! on the same object, and loses its Lease as well. So tasks on this thread never do work whose size a user decides, take no
//! lock that is held during such work, and use no connection that is driven by another runtime.

use std::{fmt, io, sync::Arc, thread};

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

/// How a process reaches the API server: the client of its controllers, and how the one of the liveness thread is made.
pub struct Clients {
    pub(crate) controllers: Client,
    liveness: Box<Connect>,
}

impl Clients {
    /// `liveness` is called on the runtime that the other client is for: the tasks of a client and of its connections run where
    /// it is made.
    pub fn new(
        controllers: Client,
        liveness: impl FnOnce() -> Result<Client> + Send + 'static,
    ) -> Self {
        Self { controllers, liveness: Box::new(liveness) }
    }
}

/// One client for everything: enough where nothing blocks the runtime that it was made on.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        let liveness = client.clone();
        Self::new(client, move || Ok(liveness))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// The thread. It ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Liveness(Arc<Inner>);

struct Inner {
    runtime: Handle,
    client: Client,
    _end: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness").finish_non_exhaustive()
    }
}

impl Liveness {
    /// Starts the thread. The requests of its client are counted.
    pub fn start(clients: Clients, calls: ApiRequestMetrics) -> Result<(Client, Self)> {
        let Clients { controllers, liveness } = clients;
        let (runtime, end) = start_thread().context("cannot start the liveness thread")?;
        let client = {
            let _context = runtime.enter();
            with_call_metrics(liveness()?, calls)
        };
        Ok((controllers, Self(Arc::new(Inner { runtime, client, _end: Some(end) }))))
    }

    /// No thread: its tasks are those of the current runtime.
    pub fn on_current_runtime(client: Client) -> Self {
        Self(Arc::new(Inner { runtime: Handle::current(), client, _end: None }))
    }

    /// Where its tasks are spawned.
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// For requests of its tasks, and of no others: a connection is driven by the runtime that opened it.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Binds a listener whose connections are served there.
    pub async fn bind(&self, address: &Address) -> Result<AdminServer> {
        let address = address.to_string();
        let bound = self.0.runtime.spawn(async move { AdminServer::bind(&address).await });
        Ok(bound.await.context("the liveness thread has ended")??)
    }
}

/// The right to write a heartbeat: by the same fence as all other writes, but it does not queue behind them.
pub(crate) fn without_rate_limit(permit: &Permit) -> Permit {
    const NO_LIMIT: f32 = -1.0;
    Permit::new(permit.fence().clone(), RateLimiter::new(NO_LIMIT, 1))
}

fn start_thread() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel::<()>();
    // Its lines belong to the log of whoever started it, even if that is not the log of the process.
    let log = tracing::dispatcher::get_default(Clone::clone);
    thread::Builder::new().name("liveness".to_owned()).spawn(move || {
        tracing::dispatcher::with_default(&log, || {
            // A sender that is gone ends it as well.
            let _ = runtime.block_on(ended);
        });
        // A page that is being rendered must not hold up the end of the process.
        runtime.shutdown_background();
    })?;
    Ok((handle, end))
}
