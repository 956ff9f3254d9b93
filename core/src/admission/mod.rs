//! Admission decisions: patches of new pods, and validation of VPAs. Pure: plain data in, patch operations, errors and
//! warnings out.

pub mod boost;
pub mod pod_patch;
pub mod validation;

pub use pod_patch::{AdmissionSettings, PodPatch, patch_pod};
