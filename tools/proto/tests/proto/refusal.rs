// SPDX-License-Identifier: GPL-2.0

use proto::{
    common::errno::Errno,
    rnbd::refusal::cure, //
};

#[test]
fn what_a_user_can_change_is_said_and_the_rest_is_left_to_the_errno() {
    for (errno, word) in [
        (Errno::ENOENT, "dev_search_path"),
        (Errno::ENXIO, "dev_search_path"),
        (Errno::EPERM, "another session"),
        (Errno::EROFS, "access_mode=ro"),
        (Errno::EACCES, "access_mode=ro"),
        (Errno::EBUSY, "for itself"),
        (Errno::EAGAIN, "again in half a minute"),
        (Errno::ENOTBLK, "block device"),
    ] {
        let text = cure(errno);
        assert!(
            text.starts_with(": ") && text.contains(word),
            "{errno:?} {text}"
        );
    }
    for errno in [Errno::EIO, Errno::ECONNABORTED, Errno::EINVAL] {
        assert_eq!(cure(errno), "");
    }
}
