//! The webhook: what API servers, and others who connect, get from it.

mod annotated;
pub mod caller;
mod calls;
pub mod cluster;
pub mod crowd;
mod differential;
mod limits;
mod quotas;
mod registered;
mod renewed;
mod rights;
mod shapes;
mod stage;
mod tls;
mod watermark;
