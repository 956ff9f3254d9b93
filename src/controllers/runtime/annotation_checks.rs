//! Validates the annotations of a VPA, whichever controller uses them.

use std::collections::BTreeMap;

use plimsoll_core::{
    api::annotations::InvalidAnnotation, recommender::tuning_annotations::Tuning,
    sizing::VpaOptions, updater::guard::maintenance_window::MaintenanceWindows,
};

pub(crate) fn find_invalid(annotations: &BTreeMap<String, String>) -> Vec<InvalidAnnotation> {
    let (_, mut invalid) = Tuning::from_annotations(annotations);
    invalid.extend(find_invalid_for_writers(annotations));
    invalid
}

/// Invalid annotations of those that affect how pods are changed. They apply whatever the recommender's settings are.
pub(crate) fn find_invalid_for_writers(
    annotations: &BTreeMap<String, String>,
) -> Vec<InvalidAnnotation> {
    let (_, mut invalid) = VpaOptions::from_annotations(annotations);
    invalid.extend(MaintenanceWindows::from_annotations(annotations).err());
    invalid
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::api::annotations::VPA_KEYS;

    #[test]
    fn every_invalid_annotation_is_reported() {
        for key in VPA_KEYS {
            let annotations = [(key.name.to_owned(), "(nonsense)".to_owned())].into();
            let invalid = find_invalid(&annotations);
            assert_eq!(
                invalid.iter().map(|annotation| annotation.key).collect::<Vec<_>>(),
                [key.name]
            );
            let is_for_writers = !key.applied_by.contains(&"recommender");
            assert_eq!(find_invalid_for_writers(&annotations).len(), usize::from(is_for_writers));
        }
    }
}
