//! Keys of a drive model: reading of their values, with units and ranges.

use super::ModelError;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use toml::{Table, Value};
use weft_engine::knobs::nearest;
use weft_units::{Bytes, Sectors, Span};

/// Reader of a model's keys. [`Fields::end`] fails if the model has a key that was not read.
pub(super) struct Fields<'a> {
    table: &'a Table,
    asked: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        // These keys describe the model and are not parameters of its kind.
        Self { table, asked: BTreeSet::from(["base", "kind", "summary"]) }
    }

    fn value(&mut self, key: &'static str, expected: &str) -> Result<&'a Value, ModelError> {
        self.asked.insert(key);
        let missing = || ModelError::Missing { key: key.into(), expected: expected.into() };
        self.table.get(key).ok_or_else(missing)
    }

    /// Value of a key that is a whole number. Fails if the key is missing or its value is not in
    /// `range`.
    pub(super) fn count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<u32, ModelError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let value = self.value(key, &expected)?;
        let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| wrong(key, value, &expected))
    }

    /// Value of a key that is a number, which need not be whole. Fails if the key is missing or its
    /// value is not in `range`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ModelError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        let value = self.value(key, &expected)?;
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        number.filter(|number| range.contains(number)).ok_or_else(|| wrong(key, value, &expected))
    }

    /// Value of a key that ends in `_percent`, in thousandths.
    pub(super) fn percent(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<u32, ModelError> {
        Ok(rounded(self.number(key, range)? * 10.0) as u32)
    }

    /// Value of a key that ends in `_ms`, as a time.
    pub(super) fn millis(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Span, ModelError> {
        Ok(Span(rounded(self.number(key, range)? * 1e6)))
    }

    /// Value of a key that ends in `_us`, as a time.
    pub(super) fn micros(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Span, ModelError> {
        Ok(Span(rounded(self.number(key, range)? * 1e3)))
    }

    /// Value of a key that ends in `_mb_s` (10^6 bytes per second), in bytes per second.
    pub(super) fn rate(&mut self, key: &'static str) -> Result<u64, ModelError> {
        Ok(rounded(self.number(key, 1.0..=100_000.0)? * 1e6))
    }

    /// Value of a key that ends in `_kib`, in sectors.
    pub(super) fn kib(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Sectors, ModelError> {
        Ok(Bytes::kib(u64::from(self.count(key, range)?)).sectors_floor())
    }

    /// Value of a key that is `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, ModelError> {
        let value = self.value(key, "true or false")?;
        value.as_bool().ok_or_else(|| wrong(key, value, "true or false"))
    }

    /// Value of a key that is one of several words. Fails if the key is missing or has another
    /// value.
    pub(super) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
    ) -> Result<&'static str, ModelError> {
        let expected = words.join(" or ");
        let value = self.value(key, &expected)?;
        let found = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| wrong(key, value, &expected))
    }

    /// Ends the reading. Returns an error if the model has a key that was not read.
    pub(super) fn end(self) -> Result<(), ModelError> {
        let mut keys = self.table.keys();
        let unknown = keys.find(|key| !self.asked.contains(key.as_str()));
        match unknown {
            None => Ok(()),
            Some(key) => {
                let known: Vec<&str> = self.asked.iter().copied().collect();
                let near = nearest(key, known.iter().copied()).map(str::to_owned);
                Err(ModelError::Unknown { key: key.clone(), expected: known.join(", "), near })
            }
        }
    }
}

/// Error of a key with a value that is not valid.
pub(super) fn wrong(key: &str, found: &Value, expected: &str) -> ModelError {
    ModelError::Wrong { key: key.into(), found: found.to_string(), expected: expected.into() }
}

/// The whole number that is nearest to a non-negative number.
#[allow(clippy::cast_sign_loss, reason = "every range begins at zero or above")]
fn rounded(number: f64) -> u64 {
    (number + 0.5) as u64
}
