//! The fields of a superblock as JSON, as `examine` and `detail` print them.

use serde_json::{Value, json};
use weft_ondisk::{Role, Superblock};

/// JSON of every field of a superblock.
pub(crate) fn fields(superblock: &Superblock) -> Value {
    let role = match superblock.own_role() {
        Ok(Role::Active(slot)) => json!({"kind": "active", "slot": slot.0}),
        Ok(role) => json!({"kind": role.to_string()}),
        Err(error) => json!({"kind": "invalid", "error": error.to_string()}),
    };
    let level = superblock.level();
    let new = superblock.as_v1();
    let bad_blocks = new.filter(|new| new.bblog_size > 0).map(|new| {
        json!({
            "offset_sectors": new.bblog_offset,
            "sectors": new.bblog_size,
            "in_use": superblock.badblocks_area().is_some(),
        })
    });
    let checksum = match superblock {
        Superblock::V0_90(old) => old.checksum(),
        Superblock::V1(new) => new.checksum(),
    };
    let numbers = 0..u32::try_from(superblock.role_count()).unwrap_or(u32::MAX);
    let roles: Vec<u16> = match superblock {
        Superblock::V0_90(_) => {
            let role = |number| superblock.role(number).unwrap_or(Role::Spare);
            numbers.map(|number| role(number).code()).collect()
        }
        Superblock::V1(new) => new.roles.clone(),
    };
    json!({
        "metadata": superblock.version().to_string(),
        "byte_order": superblock.as_v0_90().map(|old| old.order.to_string()),
        "feature_map": superblock.features().0,
        "array_uuid": superblock.set_uuid().to_string(),
        "name": superblock.name(),
        "creation_time": superblock.ctime().to_rfc3339(),
        "level": level.name(),
        "raid_devices": superblock.raid_disks(),
        "layout": level.row().layouts.name(superblock.layout()),
        "layout_code": superblock.layout(),
        "chunk_bytes": superblock.chunk().bytes().0,
        "data_size_bytes": new.map(|new| new.data_size.bytes().0),
        "used_size_bytes": superblock.used_size().bytes().0,
        "array_size_bytes": superblock.array_size().map(|size| size.bytes().0),
        "data_offset_bytes": superblock.data_offset().bytes().0,
        "super_offset_bytes": superblock.super_offset().bytes().0,
        "recovery_offset_bytes": superblock.recovery_offset().map(|at| at.bytes().0),
        "resync_offset_bytes": superblock.dirty_from().map(|at| at.bytes().0),
        "state": if superblock.dirty_from().is_none() { "clean" } else { "active" },
        "device_uuid": new.map(|new| new.device_uuid.to_string()),
        "device_number": superblock.dev_number(),
        "device_role": role,
        "device_roles": roles,
        "update_time": superblock.utime().to_rfc3339(),
        "bad_block_log": bad_blocks,
        "bitmap_offset_sectors": new.and_then(weft_ondisk::Super1::bitmap_offset),
        "checksum": format!("{checksum:08x}"),
        "events": superblock.events(),
        "corrected_reads": new.map(|new| new.cnt_corrected_read),
    })
}
