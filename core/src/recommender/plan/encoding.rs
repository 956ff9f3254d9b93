//! The bytes of a stored plan state: a version, then fixed fields in little-endian order, then the weights.

use crate::types::Time;

use super::{
    bucket_weights::BucketWeights, cpu_plan::CpuPlan, peak_window::PeakWindow,
    plan_state::PlanState, settings::CpuPlanSettings,
};

/// The version of the encoding. It changes if old readers would misread it.
const VERSION: u8 = 1;

/// A missing bucket. There are only 224.
const NO_BUCKET: u8 = u8::MAX;

/// Why a stored plan state cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlanState {
    #[error("unsupported version {0} of the plan state, expected {VERSION}")]
    Version(u8),
    /// The content is truncated or not a plan state.
    #[error("malformed plan state")]
    Malformed,
}

pub(super) fn encode(state: &PlanState) -> Vec<u8> {
    let PlanState { cpu, memory } = state;
    let mut writer = Writer(vec![VERSION]);
    writer.time(cpu.start);
    writer.0.extend(cpu.half_life.to_le_bytes());
    writer.time(cpu.hours_reference);
    writer.time(cpu.recent_reference);
    writer.time(cpu.ratio_at);
    writer.optional_time(cpu.last_sample);
    writer.optional_time(cpu.next_plan);
    writer.0.extend(cpu.samples.to_le_bytes());
    writer.0.extend(cpu.day.to_le_bytes());
    writer.number(cpu.requested);
    writer.number(cpu.used);
    writer.optional_number(cpu.target);
    writer.0.push(cpu.lowest.unwrap_or(NO_BUCKET));
    writer.0.push(cpu.peaks.len() as u8);
    writer.0.extend(cpu.peaks.iter().map(|peak| peak.unwrap_or(NO_BUCKET)));
    cpu.hours.encode(&mut writer.0);
    cpu.recent.encode(&mut writer.0);
    writer.time(memory.start);
    writer.time(memory.last_change);
    writer.optional_time(memory.last_sample);
    writer.0.extend(memory.day.to_le_bytes());
    writer.optional_number(memory.target);
    writer.optional_time(memory.last_oom.map(|(at, _)| at));
    writer.optional_number(memory.last_oom.map(|(_, raised)| raised));
    writer.0.push(memory.peaks.len() as u8);
    for peak in &memory.peaks {
        writer.optional_number(*peak);
    }
    writer.0
}

/// Reads what `encode` wrote.
pub(super) fn decode(bytes: &[u8]) -> Result<PlanState, InvalidPlanState> {
    match bytes.split_first() {
        None => Err(InvalidPlanState::Malformed),
        Some((&VERSION, rest)) => decode_fields(rest),
        Some((version, _)) => Err(InvalidPlanState::Version(*version)),
    }
}

fn decode_fields(bytes: &[u8]) -> Result<PlanState, InvalidPlanState> {
    let mut reader = Reader(bytes);
    let start = reader.time()?;
    let half_life = u32::from_le_bytes(reader.array()?);
    let hours_reference = reader.time()?;
    let recent_reference = reader.time()?;
    let ratio_at = reader.time()?;
    let last_sample = reader.optional_time()?;
    let next_plan = reader.optional_time()?;
    let samples = u64::from_le_bytes(reader.array()?);
    let day = u32::from_le_bytes(reader.array()?);
    let requested = reader.amount()?;
    let used = reader.amount()?;
    let target = reader.optional_amount()?;
    let lowest = reader.optional_bucket()?;
    let days = usize::from(reader.byte()?);
    if days > CpuPlanSettings::MAX_FORGET_DAYS as usize {
        return Err(InvalidPlanState::Malformed);
    }
    let peaks = (0..days).map(|_| reader.optional_bucket()).collect::<Result<Vec<_>, _>>()?;
    let hours = BucketWeights::decode(&mut reader.0).ok_or(InvalidPlanState::Malformed)?;
    let recent = BucketWeights::decode(&mut reader.0).ok_or(InvalidPlanState::Malformed)?;
    let cpu = CpuPlan {
        hours,
        recent,
        half_life,
        hours_reference,
        recent_reference,
        start,
        day,
        peaks,
        lowest,
        requested,
        used,
        ratio_at,
        last_sample,
        samples,
        next_plan,
        target,
    };
    let start = reader.time()?;
    let last_change = reader.time()?;
    let last_sample = reader.optional_time()?;
    let day = u32::from_le_bytes(reader.array()?);
    let target = reader.optional_amount()?;
    let last_oom = reader.optional_time()?.zip(reader.optional_amount()?);
    let days = usize::from(reader.byte()?);
    let peaks = (0..days).map(|_| reader.optional_amount()).collect::<Result<Vec<_>, _>>()?;
    let memory = PeakWindow { start, day, peaks, last_change, last_sample, last_oom, target };
    if reader.0.is_empty() {
        Ok(PlanState { cpu, memory })
    } else {
        Err(InvalidPlanState::Malformed)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn time(&mut self, time: Time) {
        self.0.extend(time.as_nanos().to_le_bytes());
    }

    /// The earliest number of nanoseconds is no time.
    fn optional_time(&mut self, time: Option<Time>) {
        self.0.extend(time.map_or(i64::MIN, Time::as_nanos).to_le_bytes());
    }

    fn number(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    fn optional_number(&mut self, number: Option<f64>) {
        self.number(number.unwrap_or(f64::NAN));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidPlanState> {
        let (array, rest) = self.0.split_first_chunk().ok_or(InvalidPlanState::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, InvalidPlanState> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn time(&mut self) -> Result<Time, InvalidPlanState> {
        self.array().map(|bytes| Time::from_nanos(i64::from_le_bytes(bytes)))
    }

    fn optional_time(&mut self) -> Result<Option<Time>, InvalidPlanState> {
        let nanos = i64::from_le_bytes(self.array()?);
        Ok((nanos != i64::MIN).then(|| Time::from_nanos(nanos)))
    }

    /// An amount of a resource is finite and not negative.
    fn amount(&mut self) -> Result<f64, InvalidPlanState> {
        self.optional_amount()?.ok_or(InvalidPlanState::Malformed)
    }

    fn optional_amount(&mut self) -> Result<Option<f64>, InvalidPlanState> {
        let number = f64::from_le_bytes(self.array()?);
        if number.is_nan() {
            Ok(None)
        } else if number.is_finite() && number >= 0.0 {
            Ok(Some(number))
        } else {
            Err(InvalidPlanState::Malformed)
        }
    }

    fn optional_bucket(&mut self) -> Result<Option<u8>, InvalidPlanState> {
        match self.byte()? {
            NO_BUCKET => Ok(None),
            bucket if usize::from(bucket) < super::buckets::BUCKETS => Ok(Some(bucket)),
            _ => Err(InvalidPlanState::Malformed),
        }
    }
}
