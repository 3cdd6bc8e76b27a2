//! Bindings to Intel's ISA-L, if it is installed.
//!
//! The library is loaded at run time by its name; weft neither links to it nor needs it. A stripe
//! consists of its data strips followed by its results, all of one length, contiguous in memory.
//!
//! Source   ISA-L 2.30, `raid.h` and `erasure_code.h`: signatures, alignment, and the 32 bytes of
//!          tables for each coefficient

use std::ffi::{c_int, c_uchar, c_void};

use libloading::Library;

/// File name of ISA-L's library, from the Debian package libisal2.
#[cfg(target_os = "linux")]
const NAME: &str = "libisal.so.2";

type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type Encode =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

/// The library, with those of its functions that the benchmark calls.
pub(super) struct IsaL {
    xor_gen: Generate,
    pq_gen: Generate,
    ec_init_tables: InitTables,
    ec_encode_data: Encode,
    /// Handle that keeps the library loaded, so that the functions stay valid.
    _library: Library,
}

impl IsaL {
    /// Loads the library.
    ///
    /// # Errors
    /// The library or a function is missing; the error is a sentence.
    pub(super) fn load() -> Result<Self, String> {
        let failed = |error: libloading::Error| error.to_string();
        // SAFETY: ISA-L has initialisers that look at the CPU, and nothing else.
        let library = unsafe { Library::new(NAME) }.map_err(failed)?;
        // SAFETY: the type is that of raid.h.
        let xor_gen = *unsafe { library.get::<Generate>("xor_gen") }.map_err(failed)?;
        // SAFETY: the type is that of raid.h.
        let pq_gen = *unsafe { library.get::<Generate>("pq_gen") }.map_err(failed)?;
        // SAFETY: the type is that of erasure_code.h.
        let ec_init_tables =
            *unsafe { library.get::<InitTables>("ec_init_tables") }.map_err(failed)?;
        // SAFETY: the type is that of erasure_code.h.
        let ec_encode_data = *unsafe { library.get::<Encode>("ec_encode_data") }.map_err(failed)?;
        Ok(Self { xor_gen, pq_gen, ec_init_tables, ec_encode_data, _library: library })
    }

    /// Computes P of a stripe from its `sources` data strips, and writes P to the stripe's last
    /// strip.
    pub(super) fn xor_gen(&self, sources: usize, strip_bytes: usize, stripe: &mut [u8]) {
        let mut strips = strips_of(sources + 1, strip_bytes, stripe);
        let array = strips.as_mut_ptr();
        // SAFETY: `array` has `sources + 1` pointers, each to `strip_bytes` bytes aligned to 32.
        // Only the last strip is written, and `stripe` is borrowed for writing.
        let status = unsafe { (self.xor_gen)(count(sources + 1), count(strip_bytes), array) };
        clean_upper();
        assert_eq!(status, 0, "xor_gen");
    }

    /// Computes P and Q of a stripe from its `sources` data strips, and writes them to the stripe's
    /// last two strips.
    pub(super) fn pq_gen(&self, sources: usize, strip_bytes: usize, stripe: &mut [u8]) {
        let mut strips = strips_of(sources + 2, strip_bytes, stripe);
        let array = strips.as_mut_ptr();
        // SAFETY: `array` has `sources + 2` pointers, each to `strip_bytes` bytes aligned to 32.
        // Only the last two strips are written, and `stripe` is borrowed for writing.
        let status = unsafe { (self.pq_gen)(count(sources + 2), count(strip_bytes), array) };
        clean_upper();
        assert_eq!(status, 0, "pq_gen");
    }

    /// Tables for [`Self::ec_encode_data`], from `rows` rows of coefficients.
    pub(super) fn tables(&self, sources: usize, rows: usize, coefficients: &[u8]) -> Vec<u8> {
        assert_eq!(coefficients.len(), sources * rows);
        let mut coefficients = coefficients.to_vec();
        let mut tables = vec![0; 32 * sources * rows];
        let (sources, rows) = (count(sources), count(rows));
        // SAFETY: both buffers have the sizes that the header requires for these counts: that of
        // `coefficients` is asserted above, `tables` is made with its size.
        unsafe {
            (self.ec_init_tables)(sources, rows, coefficients.as_mut_ptr(), tables.as_mut_ptr());
        }
        tables
    }

    /// Computes the results of a stripe from its `sources` data strips, one for each row of
    /// `tables`, and writes them to the strips behind the data.
    pub(super) fn ec_encode_data(
        &self,
        sources: usize,
        strip_bytes: usize,
        tables: &[u8],
        stripe: &mut [u8],
    ) {
        let rows = tables.len() / (32 * sources);
        assert_eq!(tables.len(), 32 * sources * rows);
        let mut strips = strips_of(sources + rows, strip_bytes, stripe);
        let (data, results) = strips.split_at_mut(sources);
        let (data, results) = (data.as_mut_ptr().cast(), results.as_mut_ptr().cast());
        let tables = tables.as_ptr().cast_mut();
        let (bytes, sources, rows) = (count(strip_bytes), count(sources), count(rows));
        // SAFETY: the numbers of pointers and of tables are those of the counts, as asserted above.
        // Tables and data are only read, and the results are borrowed for writing.
        unsafe { (self.ec_encode_data)(bytes, sources, rows, tables, data, results) };
        clean_upper();
    }
}

/// Marks the upper halves of the vector registers as unused, because ISA-L's functions do not.
///
/// Without this, the next SSE instruction would wait until all of ISA-L's work is done, instead of
/// overlapping with the next call. This would halve ISA-L's figures at 4 KiB, although its
/// functions are not slower.
#[inline(always)]
fn clean_upper() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the CPU has AVX.
        unsafe { zero_upper() }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn zero_upper() {
    std::arch::x86_64::_mm256_zeroupper();
}

/// Pointers to the strips of a stripe in ISA-L's form: at most [`STRIPS_MAX`]; the rest of the
/// array is null.
#[inline(always)]
fn strips_of(strips: usize, strip_bytes: usize, stripe: &mut [u8]) -> [*mut c_void; STRIPS_MAX] {
    assert!(strips <= STRIPS_MAX && strip_bytes.is_multiple_of(64));
    assert_eq!(stripe.len(), strips * strip_bytes);
    let start = stripe.as_mut_ptr();
    assert!(start.addr().is_multiple_of(32));
    let mut pointers = [std::ptr::null_mut(); STRIPS_MAX];
    for (index, pointer) in pointers[..strips].iter_mut().enumerate() {
        *pointer = start.wrapping_add(index * strip_bytes).cast();
    }
    pointers
}

const STRIPS_MAX: usize = super::measure::SOURCES_MAX + 2;

#[inline(always)]
fn count(number: usize) -> c_int {
    c_int::try_from(number).expect("counts of a stripe are small")
}
