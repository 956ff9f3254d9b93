//! The webhook: what API servers, and others who connect, get from it.

mod annotated;
pub mod caller;
mod calls;
mod cluster;
mod limits;
mod registered;
mod renewed;
mod rights;
mod stage;
mod tls;
