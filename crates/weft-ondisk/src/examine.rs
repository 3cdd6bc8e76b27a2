//! How a superblock reads: field by field, as `mdadm --examine` prints it.
