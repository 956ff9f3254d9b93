//! Scale rates and bounds: vectors L1 to L5, N1 to N11 and X14 to X23.

use plimsoll_core::{
    types::{
        compat::{Compat, Fixes},
        quantity::Quantity,
    },
    watermark::{
        LimitHit::{self, AboveMax, BelowMin, BelowOne, DownscaleRate, Unlimited, UpscaleRate},
        ReplicaLimits,
    },
};

use super::both_modes;

fn percent(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

fn limits(min: i32, max: i32, up: &str, down: &str) -> ReplicaLimits {
    ReplicaLimits { min, max, upscale_percent: percent(up), downscale_percent: percent(down) }
}

#[test]
fn a_step_is_a_percentage_and_at_least_one_replica() {
    for (name, factor, current, up, down) in [
        ("L1", "30", 423, 549, 297),
        ("L2", "0", 423, 423, 423),
        ("L3", "12", 423, 473, 373),
        ("L4", "100", 423, 846, 0),
        ("L5", "73", 423, 731, 115),
        ("X14", "50", 1, 2, 0),
        ("X14", "50", 2, 3, 1),
        ("X14", "50", 3, 4, 2),
        ("X15", "500m", 10, 11, 9),
        ("X16", "150", 10, 25, -5),
        ("N9", "30", 10, 13, 7),
        ("N10", "29", 10, 12, 8),
    ] {
        let limits = limits(1, 1000, factor, factor);
        assert_eq!(
            (limits.upscale_limit(current), limits.downscale_limit(current)),
            (up, down),
            "{name}"
        );
    }
    assert_eq!(limits(1, 10, "1T", "1").upscale_limit(i32::MAX), i32::MAX);
}

#[test]
fn proposals_stay_within_their_limits() {
    type LimitVector =
        (&'static str, (i32, i32, &'static str, &'static str), i32, i32, u32, i32, LimitHit);
    #[rustfmt::skip]
    let vectors: [LimitVector; 18] = [
        ("N1", (15, 80, "30", "10"), 50, 10, 50, 45, DownscaleRate),
        ("N2", (30, 80, "30", "70"), 50, 10, 50, 30, DownscaleRate),
        ("N3", (10, 6, "30", "30"), 50, 15, 50, 35, DownscaleRate),
        ("N4", (10, 80, "30", "30"), 50, 40, 50, 40, Unlimited),
        ("N5", (3, 60, "20", "0"), 50, 80, 50, 60, UpscaleRate),
        ("N6", (3, 60, "40", "0"), 50, 65, 50, 60, AboveMax),
        ("N7", (3, 60, "40", "0"), 50, 55, 50, 55, Unlimited),
        ("N8", (3, 60, "15", "15"), 50, 10, 40, 50, DownscaleRate),
        ("N9", (1, 60, "30", "30"), 10, 14, 10, 13, UpscaleRate),
        ("N10", (1, 60, "29", "29"), 10, 13, 10, 12, UpscaleRate),
        ("N11", (1, 60, "29", "29"), 10, 7, 10, 8, DownscaleRate),
        ("X17", (4, 9, "50", "30"), 6, 12, 6, 9, UpscaleRate),
        ("X18", (1, 20, "0", "20"), 10, 12, 10, 10, UpscaleRate),
        ("X19", (1, 20, "50", "0"), 10, 5, 10, 10, DownscaleRate),
        ("X20", (1, 20, "50", "20"), 10, 0, 0, 8, DownscaleRate),
        ("X21", (1, 20, "50", "20"), 10, 9, 9, 9, Unlimited),
        ("X22", (0, 20, "50", "20"), 10, 0, 10, 1, BelowOne),
        ("X23", (3, 5, "50", "20"), 0, 0, 0, 3, BelowMin),
    ];
    for (name, (min, max, up, down), current, proposed, ready, replicas, limited) in vectors {
        for fixes in both_modes() {
            let normal = limits(min, max, up, down).apply_limits(current, proposed, ready, fixes);
            assert_eq!((normal.replicas, normal.limit_hit), (replicas, limited), "{name}");
        }
    }
}

#[test]
fn upstream_never_clears_upscale_capping_but_clears_downscale_capping() {
    let limits = limits(1, 60, "30", "30");
    let caps = |proposed, fixes| {
        let normal = limits.apply_limits(10, proposed, 10, fixes);
        (normal.downscale_capping, normal.upscale_capping)
    };
    let [theirs, ours] = both_modes();
    assert_eq!(
        (caps(14, theirs), caps(14, ours)),
        ((Some(false), Some(true)), (Some(false), Some(true)))
    );
    assert_eq!(
        (caps(12, theirs), caps(12, ours)),
        ((Some(false), None), (Some(false), Some(false)))
    );
    assert_eq!((caps(3, theirs), caps(3, ours)), ((Some(true), None), (Some(true), Some(false))));
    assert_eq!(Fixes::for_compat(Compat::Upstream), theirs);
}
