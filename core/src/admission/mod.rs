//! What admission answers: patches of new pods, and what is wrong with VPA objects. Pure: plain data in, operations,
//! errors and warnings out.

pub mod boost;
pub mod pod_patch;
pub mod validation;

pub use pod_patch::{AdmissionSettings, PodPatch, patch_pod};
