//! Position of a device between its limits, and the position ratio that scales its writers' rate.
//!
//! The ratio is a product of three factors: a cubic function of all dirty pages around the
//! setpoint, a linear function of the device's dirty pages around the device's part of the
//! setpoint, and a boost while the device is within its reserve. Values are fixed-point numbers
//! with 10 fractional bits.
//!
//! Source   writeback.md §2.1, §2.2

use super::super::{Facts, Thresholds};
use super::{Reserve, Rules};

/// Numbers of dirty pages, and limits, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) thresholds: Thresholds,
    /// The kernel's `limit` in pages, which follows the dirty threshold slowly.
    pub(crate) limit: u64,
    /// Number of pages of all devices that are dirty or under writeback.
    pub(crate) dirty: u64,
    /// The device's share of the dirty threshold, in pages.
    pub(crate) bdi_thresh: u64,
    /// The device's share of the background threshold, in pages.
    pub(crate) bdi_background: u64,
    /// Whether the device's own limits apply in addition.
    pub(crate) strictlimit: bool,
    /// Number of pages of the device that are dirty or under writeback.
    pub(crate) bdi_dirty: u64,
    /// Average write bandwidth of the device, in pages per second.
    pub(crate) bandwidth: u64,
}

/// Ratio 1.0 as a fixed-point number.
pub(super) const ONE: u64 = 1 << RATELIMIT_CALC_SHIFT;

/// Number of fractional bits in ratios.
pub(super) const RATELIMIT_CALC_SHIFT: u32 = 10;

impl Position {
    pub(crate) fn of(facts: &Facts) -> Self {
        Self {
            thresholds: facts.thresholds,
            limit: facts.limit,
            dirty: facts.all.total(),
            bdi_thresh: facts.bdi_share.of(facts.thresholds.dirty),
            bdi_background: facts.bdi_share.of(facts.thresholds.background),
            strictlimit: facts.strictlimit,
            bdi_dirty: facts.bdi.total(),
            bandwidth: facts.bandwidth,
        }
    }

    /// Hard limit: number of pages, dirty or under writeback, at which writers are held.
    pub(crate) fn hard_limit(&self) -> u64 {
        self.limit.max(self.thresholds.dirty)
    }

    /// Setpoint: the number of dirty pages to which the ratio steers, half-way between free run and
    /// hard limit.
    pub(crate) fn setpoint(&self) -> u64 {
        u64::midpoint(self.thresholds.free_run(), self.hard_limit())
    }

    /// Whether the device's own limits apply: a rule of 3.12 and later.
    pub(crate) fn is_strict(&self, rules: &Rules) -> bool {
        self.strictlimit && rules.think_time
    }

    /// Mean of the device's background limit and its dirty limit, in pages. Up to this number of
    /// dirty pages the device is in free run.
    pub(crate) fn bdi_free_run(&self) -> u64 {
        u64::midpoint(self.bdi_background, self.bdi_thresh)
    }

    /// The position ratio; 1.0 is 1024.
    pub(crate) fn ratio(&self, rules: &Rules) -> u64 {
        let limit = self.hard_limit();
        if self.dirty >= limit {
            return 0;
        }
        if self.is_strict(rules) {
            return self.strict_ratio(rules);
        }
        let share = self.share(rules);
        let ratio = self.line(rules, share, self.cubic(rules));
        let reserve = match rules.reserve {
            Reserve::OfBandwidth => self.bandwidth.min(self.thresholds.free_run()),
            Reserve::HalfShare { plus } => share / 2 + plus,
        };
        if self.bdi_dirty >= reserve {
            ratio
        } else if self.bdi_dirty > reserve / 8 {
            scaled(ratio, reserve, self.bdi_dirty)
        } else {
            ratio.saturating_mul(8)
        }
    }

    /// Position ratio if the device's own limits apply: the lower of the ratio for all pages and
    /// the ratio for the device's pages. The setpoint for the device's pages is half-way between
    /// the device's limits. A device with very few dirty pages gets twice the ratio for all pages,
    /// at most 2.0.
    fn strict_ratio(&self, rules: &Rules) -> u64 {
        let all = self.cubic(rules);
        if self.bdi_dirty < STRICT_FREE_PAGES {
            return (2 * all).min(2 * ONE);
        }
        let (setpoint, limit) = (self.bdi_free_run(), self.bdi_thresh);
        if self.bdi_dirty >= limit || setpoint == 0 || setpoint == limit {
            return 0;
        }
        all.min(cubic(rules, setpoint, self.bdi_dirty, limit))
    }

    fn cubic(&self, rules: &Rules) -> u64 {
        cubic(rules, self.setpoint(), self.dirty, self.hard_limit())
    }

    /// The device's share in pages, as used for the line and the reserve.
    fn share(&self, rules: &Rules) -> u64 {
        let share = self.bdi_thresh.min(self.thresholds.dirty);
        let floor = self.hard_limit().saturating_sub(self.dirty) / 8;
        if rules.share_floor { share.max(floor) } else { share }
    }

    /// `ratio` times the device's control line: a factor that is 1.0 at the device's share of the
    /// setpoint and falls linearly with the device's dirty pages. With the slope for a sole device,
    /// the factor would reach 0 within eight seconds of write bandwidth; with the slope for one of
    /// many devices, within about the device's share of the threshold (twice that with the
    /// auxiliary line).
    fn line(&self, rules: &Rules, share: u64, ratio: u64) -> u64 {
        let thresh = self.thresholds.dirty;
        let part = (share << 16) / divisor(rules, thresh);
        let setpoint = times_part(self.setpoint(), part);
        let seconds = if rules.auxiliary_line { 4 } else { 8 };
        let rest = thresh.saturating_sub(share);
        let span = times_part(rest.saturating_add(self.bandwidth.saturating_mul(seconds)), part);
        let down_to = |ratio: u64, from: u64, zero: u64| {
            let left = zero.saturating_sub(self.bdi_dirty);
            scaled(ratio, left, divisor(rules, zero.saturating_sub(from)))
        };
        if !rules.auxiliary_line {
            let zero = setpoint + span;
            let is_near = self.bdi_dirty < zero - span / 4;
            return if is_near { down_to(ratio, setpoint, zero) } else { ratio / 4 };
        }
        let (half, zero, limit) = (setpoint + span, setpoint + 2 * span, self.hard_limit());
        if self.bdi_dirty > half && zero < limit {
            down_to(ratio / 2, half, limit)
        } else {
            down_to(ratio, setpoint, zero)
        }
    }
}

/// Number of dirty pages below which a device with limits of its own is hardly throttled.
const STRICT_FREE_PAGES: u64 = 8;

/// The cubic factor: 2.0 at free run, 1.0 at the setpoint, 0 at the limit.
fn cubic(rules: &Rules, setpoint: u64, dirty: u64, limit: u64) -> u64 {
    let [from, to] = [setpoint, dirty].map(i128::from);
    // Division rounds towards zero; the shifts below round down.
    let x = ((from - to) << RATELIMIT_CALC_SHIFT)
        / i128::from(divisor(rules, limit.saturating_sub(setpoint)));
    let one = i128::from(ONE);
    let cube = ((x * x) >> RATELIMIT_CALC_SHIFT) * x;
    let ratio = one + (cube >> RATELIMIT_CALC_SHIFT);
    let most = if rules.think_time { 2 * one } else { i128::from(u64::MAX >> 16) };
    u64::try_from(ratio.clamp(0, most)).expect("clamped to be one")
}

/// `pages` made a divisor that is never 0, as the kernel does: `pages + 1`, or `pages | 1` in later
/// versions.
const fn divisor(rules: &Rules, pages: u64) -> u64 {
    if rules.think_time { pages | 1 } else { pages + 1 }
}

/// Multiplies `pages` by `part`, a fraction in units of 2^-16.
fn times_part(pages: u64, part: u64) -> u64 {
    scaled(pages, part, 1 << 16)
}

fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::DirtyThrottle::{self, Mainline3_2, Mainline6_12, Patch001, V11};
    use super::*;

    /// Position of one disk of 58 MiB/s.
    fn one_disk(dirty: u64, background: u64, at: u64) -> Position {
        Position {
            thresholds: Thresholds { background, dirty },
            limit: dirty,
            dirty: at,
            bdi_thresh: dirty,
            bdi_background: 0,
            strictlimit: false,
            bdi_dirty: at,
            bandwidth: 14_848,
        }
    }

    #[test]
    fn a_strict_device_is_held_at_its_own_limit_though_little_is_dirty_in_all() {
        let (bdi_thresh, bdi_background, strictlimit) = (256, 128, true);
        let strict = |bdi_dirty, rules| {
            Position { bdi_thresh, bdi_background, strictlimit, bdi_dirty, ..at(1000) }.ratio(rules)
        };
        let rules = Mainline6_12.rules();
        let found = [7, 192, 256].map(|dirty| strict(dirty, rules));
        assert_eq!(found, [2 * ONE, ONE, 0], "next to nothing, the setpoint, the limit");
        assert!((1..ONE).contains(&strict(224, rules)));
        assert!(strict(256, V11.rules()) > ONE, "before 3.12 there is no such rule");
    }

    /// Position of one disk with a limit of 100 MiB.
    fn at(dirty: u64) -> Position {
        one_disk(25_600, 12_800, dirty)
    }

    /// Position of one of ten disks at the setpoint of 100 MiB.
    fn one_of_ten(bdi_thresh: u64, bdi_dirty: u64) -> Position {
        Position { bdi_thresh, bdi_dirty, bandwidth: 12_800, ..at(22_400) }
    }

    fn ratio(variant: DirtyThrottle, position: Position) -> u64 {
        position.ratio(variant.rules())
    }

    #[test]
    fn writeback_statement_1_free_run_and_setpoint_of_100_mib() {
        assert_eq!((at(0).thresholds.free_run(), at(0).setpoint()), (19_200, 22_400));
        // While `limit` is still above a threshold that fell with memory, hard limit and setpoint
        // are higher.
        let shrank = Position { limit: 30_000, ..at(0) };
        assert_eq!((shrank.hard_limit(), shrank.setpoint()), (30_000, 24_600));
    }

    #[test]
    fn writeback_statements_2_to_10_the_cubic_of_3_2() {
        let table = [
            (19_200, 2045),
            (20_000, 1453),
            (20_800, 1151),
            (21_600, 1039),
            (22_400, 1024),
            (23_200, 1008),
            (24_000, 896),
            (24_800, 594),
            (25_599, 2),
        ];
        for (dirty, expected) in table {
            assert_eq!(at(dirty).cubic(Mainline3_2.rules()), expected, "{dirty}");
        }
        for variant in [V11, Patch001, Mainline3_2, Mainline6_12] {
            assert_eq!(ratio(variant, at(25_600)), 0, "at the limit");
            assert_eq!(ratio(variant, at(30_000)), 0);
        }
    }

    #[test]
    fn writeback_statement_11_the_cubic_of_today_is_clamped() {
        for (dirty, expected) in [(0, 2048), (19_200, 2045), (24_000, 896)] {
            assert_eq!(at(dirty).cubic(Mainline6_12.rules()), expected, "{dirty}");
        }
        assert!(at(0).cubic(Mainline3_2.rules()) > 300 * ONE, "no clamp");
    }

    #[test]
    fn writeback_statements_12_to_15_ratio_of_one_disk() {
        for (dirty, expected) in [(22_400, 1023), (19_200, 2100), (24_000, 883), (25_000, 466)] {
            for variant in [Patch001, Mainline3_2] {
                assert_eq!(ratio(variant, at(dirty)), expected, "{variant:?} {dirty}");
            }
        }
    }

    #[test]
    fn writeback_statements_16_and_17_reserve_of_one_disk() {
        let low = |bdi_dirty| Position { bdi_dirty, ..at(22_400) };
        assert_eq!(ratio(Mainline3_2, low(5000)), 3002);
        assert_eq!(ratio(Patch001, low(5000)), 3243);
        for variant in [Patch001, Mainline3_2] {
            assert_eq!(ratio(variant, low(1000)), 9664);
        }
    }

    #[test]
    fn writeback_statements_18_to_23_ratio_of_one_of_ten_disks() {
        // Pages of the device, ratio in 3.2, ratio with patch 001.
        let table = [
            (2240, 1023, 1052),
            (1280, 1102, 1983),
            (1000, 1440, 2592),
            (500, 2982, 5368),
            (100, 9584, 9584),
            (4000, 880, 880),
            (8000, 553, 553),
        ];
        for (bdi_dirty, mainline, patch) in table {
            let position = one_of_ten(2560, bdi_dirty);
            assert_eq!(ratio(Mainline3_2, position), mainline, "{bdi_dirty}");
            assert_eq!(ratio(Patch001, position), patch, "{bdi_dirty}");
        }
        assert_eq!(ratio(V11, one_of_ten(2560, 2240)), 5845);
    }

    #[test]
    fn writeback_statement_24_a_disk_without_a_share_is_not_stuck() {
        for (bdi_dirty, expected) in [(0, 9616), (50, 4708), (200, 1100), (400, 997)] {
            assert_eq!(ratio(Mainline3_2, one_of_ten(0, bdi_dirty)), expected, "{bdi_dirty}");
        }
        let stuck = Rules { share_floor: false, ..*Mainline3_2.rules() };
        for bdi_dirty in [0, 50, 200, 400] {
            assert_eq!(one_of_ten(0, bdi_dirty).ratio(&stuck), 256);
        }
    }

    #[test]
    fn writeback_statements_25_to_28_ratios_of_other_limits() {
        let tiny = |dirty| one_disk(256, 128, dirty);
        assert_eq!(ratio(Mainline3_2, tiny(224)), 1023);
        assert_eq!(ratio(Patch001, tiny(224)), 5261, "1,152 pages of reserve, of 256");
        assert_eq!(ratio(Mainline3_2, tiny(200)), 1416);
        assert_eq!(ratio(Mainline3_2, tiny(250)), 523);
        let small = one_disk(2048, 1024, 1792);
        assert_eq!(ratio(Mainline3_2, small), 1023);
        assert_eq!(ratio(Patch001, small), 1169);
        let of_ten = |bdi_dirty| Position {
            bdi_thresh: 20_480,
            bdi_dirty,
            bandwidth: 16_896,
            ..one_disk(204_800, 102_400, 179_200)
        };
        assert_eq!(ratio(Mainline3_2, of_ten(17_920)), 1023);
        assert_eq!(ratio(Mainline3_2, of_ten(5000)), 2945);
        let close = one_disk(102_400, 76_800, 96_000);
        assert_eq!((close.thresholds.free_run(), close.setpoint()), (89_600, 96_000));
        assert_eq!(ratio(Mainline3_2, close), 1023);
    }

    #[test]
    fn the_second_line_of_v11_goes_from_a_half_to_the_limit() {
        // One of ten disks: the device's part of the setpoint is 2,239, a ratio of 1/2 is reached
        // at 9,662, and the first line would end at 17,085. The reserve is small enough not to
        // matter.
        let rules = Rules { reserve: Reserve::HalfShare { plus: 0 }, ..*V11.rules() };
        let ratio = |bdi_dirty| one_of_ten(2560, bdi_dirty).ratio(&rules);
        assert_eq!(ratio(9_662), 511);
        assert!(ratio(17_630).abs_diff(256) <= 1, "half-way to the limit: {}", ratio(17_630));
        assert_eq!(ratio(25_600), 0);
        // The first line of a sole disk ends beyond the limit.
        assert!(at(25_500).ratio(&rules) > 0);
    }

    #[test]
    fn no_page_and_no_limit_is_beyond_the_arithmetic() {
        for variant in [V11, Patch001, Mainline3_2, Mainline6_12] {
            for (dirty, background) in [(0_u64, 0), (1, 0), (2, 1), (1 << 40, 1 << 39)] {
                for at in [0, 1, dirty.saturating_sub(1), dirty] {
                    let position = one_disk(dirty, background, at);
                    let ratio = Position { bandwidth: 1 << 40, ..position }.ratio(variant.rules());
                    assert_eq!(ratio == 0, at >= dirty, "{variant:?} {at} of {dirty}: {ratio}");
                }
            }
        }
    }

    #[test]
    fn a_strict_device_with_limits_that_leave_no_span_is_held() {
        let rules = Mainline6_12.rules();
        let strict = |bdi_background, bdi_thresh, bdi_dirty| {
            let strictlimit = true;
            let own = Position { bdi_thresh, bdi_background, strictlimit, bdi_dirty, ..at(1000) };
            own.strict_ratio(rules)
        };
        assert_eq!(strict(256, 256, 100), 0, "the setpoint is the limit");
        assert_eq!(strict(0, 1, 100), 0, "no setpoint");
        assert!(strict(128, 256, 100) > 0);
    }

    #[test]
    fn the_line_ends_at_a_quarter_of_the_ratio() {
        // The line of a sole device falls from 22,400 pages over a span of eight seconds.
        let position = Position { bandwidth: 1_000, ..at(22_400) };
        let ratio = |bdi_dirty| {
            Position { bdi_dirty, ..position }.line(Mainline3_2.rules(), 25_600, 4 * ONE)
        };
        let span = 8_000;
        let near = ratio(22_400 + span * 3 / 4 - 100);
        assert!((ONE..ONE + ONE / 4).contains(&near), "{near}");
        assert_eq!(ratio(22_400 + span * 3 / 4 + 100), ONE);
        assert!(ratio(22_400 + span / 2) > 3 * ONE / 2);
    }

    #[test]
    fn the_cubic_of_3_2_has_a_bound_of_48_bits() {
        let far = cubic(Mainline3_2.rules(), 1 << 25, 0, (1 << 25) + 1);
        assert_eq!(far, u64::MAX >> 16);
    }
}
