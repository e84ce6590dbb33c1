// SPDX-License-Identifier: GPL-2.0

//! The numbers of requests and of what they contain (`gfm_proto.h`, `gfs_proto.h`).

/// Begins requests of which each is carried out if all before it were.
pub const GFM_PROTO_COMPOUND_BEGIN: u32 = 64;
/// Ends them, and closes the descriptors that were not exported.
pub const GFM_PROTO_COMPOUND_END: u32 = 65;
/// Makes an exported descriptor the current one.
pub const GFM_PROTO_PUT_FD: u32 = 67;
/// Exports the current descriptor.
pub const GFM_PROTO_GET_FD: u32 = 68;
/// Opens the root directory.
pub const GFM_PROTO_OPEN_ROOT: u32 = 80;
/// Opens a name of the current directory.
pub const GFM_PROTO_OPEN: u32 = 82;
/// Closes the current descriptor.
pub const GFM_PROTO_CLOSE: u32 = 84;
/// Fails if the current object has another type.
pub const GFM_PROTO_VERIFY_TYPE: u32 = 85;
/// Returns the attributes of the current object.
pub const GFM_PROTO_FSTAT: u32 = 96;
/// Returns the gfsds from which the current file can be read.
pub const GFM_PROTO_SCHEDULE_FILE: u32 = 102;
/// Returns the target of the current symbolic link.
pub const GFM_PROTO_READLINK: u32 = 117;
/// Sets the position in the current directory.
pub const GFM_PROTO_SEEK: u32 = 120;
/// Returns the next entries of the current directory, with attributes.
pub const GFM_PROTO_GETDIRENTSPLUS: u32 = 121;
/// Returns how full the file system is.
pub const GFM_PROTO_STATFS: u32 = 178;
/// Creates a process, which owns descriptors.
pub const GFM_PROTO_PROCESS_ALLOC: u32 = 224;
/// Ends the connection's process.
pub const GFM_PROTO_PROCESS_FREE: u32 = 226;
/// Joins a process of another connection.
pub const GFM_PROTO_PROCESS_SET: u32 = 227;

/// Joins a process of gfmd.
pub const GFS_PROTO_PROCESS_SET: u32 = 0;
/// Opens the file of a descriptor of gfmd.
pub const GFS_PROTO_OPEN: u32 = 2;
/// Closes it.
pub const GFS_PROTO_CLOSE: u32 = 3;
/// Reads at a position.
pub const GFS_PROTO_PREAD: u32 = 4;
/// Returns size and times of an open file as they are now.
pub const GFS_PROTO_FSTAT: u32 = 8;
/// Joins another process, after gfmd was restarted.
pub const GFS_PROTO_PROCESS_RESET: u32 = 24;
/// Reads a range in chunks that follow one another.
pub const GFS_PROTO_BULKREAD: u32 = 27;

/// Opens for reading.
pub const GFARM_FILE_RDONLY: u32 = 0;
/// Opens to look up names or attributes only.
pub const GFARM_FILE_LOOKUP: u32 = 3;

/// The only type of a process's key.
pub const GFM_PROTO_PROCESS_KEY_TYPE_SHAREDSECRET: u32 = 1;

/// `whence` of [`GFM_PROTO_SEEK`]: from the beginning.
pub const GFARM_SEEK_SET: u32 = 0;

/// The method of authentication with a shared key.
pub const GFARM_AUTH_METHOD_SHAREDSECRET: u32 = 1;
/// No method: the client gives up.
pub const GFARM_AUTH_METHOD_NONE: u32 = 0;
/// Asks for a challenge, to be answered with MD5.
pub const GFARM_AUTH_SHAREDSECRET_MD5: u32 = 1;
/// The client has no other key to try.
pub const GFARM_AUTH_SHAREDSECRET_GIVEUP: u32 = 0;
