use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::grpc::hpack::Header;

fn header(name: &str, value: &str) -> Header {
    Header { name: name.into(), value: value.into(), is_sensitive: false }
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        hpack::encode(&header(name, value), &mut bytes);
    }
    bytes
}

fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
    bytes.extend_from_slice(content);
    bytes
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE.to_vec(), frames.concat()].concat()
}

const SOCKET_PATH: &str = "run%2Fuser%2F0%2Fagbox%2Fagboxd.sock";

#[test]
fn an_authority_that_cannot_be_read_becomes_localhost() {
    let rows = [
        (SOCKET_PATH, "localhost"),
        ("", "localhost"),
        ("a b", "localhost"),
        ("127.0.0.1:7700", "127.0.0.1:7700"),
        ("localhost", "localhost"),
        ("[::1]:80", "[::1]:80"),
    ];
    for (sent, expected) in rows {
        let sent = block(&[(":path", "/p"), (":authority", sent), ("x", "%2F")]);
        let expected = block(&[(":path", "/p"), (":authority", expected), ("x", "%2F")]);
        let input = connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &sent)]);
        let output = connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &expected)]);
        assert_eq!(rewrite(&input, &[]), Ok(output));
    }
}

#[test]
fn other_frames_go_through_as_they_are() {
    let input = connection(&[
        frame(4, 0, 0, &[0; 12]),
        frame(8, 0, 0, &[0, 0, 1, 0]),
        frame(0, 1, 1, &[7; 5000]),
        frame(6, 0, 0, &[1; 8]),
        frame(0xee, 0xff, 3, b"unknown"),
        frame(0, 0, 3, b""),
    ]);
    assert_eq!(rewrite(&input, &[]), Ok(input.clone()));
}

#[test]
fn padding_priority_and_continuations_are_put_together() {
    let sent = block(&[(":authority", SOCKET_PATH), ("te", "trailers")]);
    let (first, second) = sent.split_at(7);
    let padded = [&[3][..], &[0, 0, 0, 0, 16], first, &[0, 0, 0]].concat();
    let input = connection(&[
        frame(HEADERS, PADDED | PRIORITY | END_STREAM, 5, &padded),
        frame(CONTINUATION, 0, 5, &[]),
        frame(CONTINUATION, END_HEADERS, 5, second),
    ]);
    let expected = block(&[(":authority", "localhost"), ("te", "trailers")]);
    let output = connection(&[frame(HEADERS, END_HEADERS | END_STREAM, 5, &expected)]);
    assert_eq!(rewrite(&input, &[]), Ok(output));
}

#[test]
fn a_field_that_was_sent_before_is_written_out() {
    let mut indexed = block(&[(":authority", SOCKET_PATH)]);
    indexed[0] = 0b0100_0000;
    let input = connection(&[
        frame(HEADERS, END_HEADERS, 1, &indexed),
        frame(HEADERS, END_HEADERS, 3, &[0xbe, 0x83]),
    ]);
    let first = block(&[(":authority", "localhost")]);
    let second = block(&[(":authority", "localhost"), (":method", "POST")]);
    let output = connection(&[
        frame(HEADERS, END_HEADERS, 1, &first),
        frame(HEADERS, END_HEADERS, 3, &second),
    ]);
    assert_eq!(rewrite(&input, &[]), Ok(output));
}

#[test]
fn a_large_block_is_written_in_frames_that_the_library_takes() {
    let value = "v".repeat(10_000);
    let sent = block(&[("a", &value), ("b", &value), ("c", &value)]);
    let pieces: Vec<&[u8]> = sent.chunks(MAX_FRAME_BYTES).collect();
    let input = connection(&[
        frame(HEADERS, 0, 1, pieces[0]),
        frame(CONTINUATION, END_HEADERS, 1, pieces[1]),
    ]);
    assert_eq!(rewrite(&input, &[]), Ok(input.clone()));
}

#[test]
fn what_cannot_be_read_or_has_no_end_breaks_the_connection() {
    let large = vec![0; MAX_FRAME_BYTES];
    let endless = [vec![frame(HEADERS, 0, 1, &[])], vec![frame(CONTINUATION, 0, 1, &[]); 40]];
    let huge = [vec![frame(HEADERS, 0, 1, &large)], vec![frame(CONTINUATION, 0, 1, &large); 4]];
    let rows: [(Vec<u8>, Broken); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Broken::Preface),
        (connection(&[frame(CONTINUATION, 0, 1, &[])]), Broken::Order),
        (connection(&[frame(HEADERS, 0, 1, &[]), frame(0, 0, 1, &[])]), Broken::Order),
        (connection(&[frame(HEADERS, 0, 1, &[]), frame(CONTINUATION, 0, 3, &[])]), Broken::Order),
        (connection(&[frame(HEADERS, PADDED, 1, &[9, 0])]), Broken::Padding),
        (connection(&[frame(HEADERS, 0, 1, &vec![0; MAX_FRAME_BYTES + 1])]), Broken::FrameSize),
        (connection(&endless.concat()), Broken::BlockSize),
        (connection(&huge.concat()), Broken::BlockSize),
        (connection(&[frame(HEADERS, END_HEADERS, 1, &[0x80])]), Broken::Hpack(HpackError::Index)),
    ];
    for (input, expected) in rows {
        assert_eq!(rewrite(&input, &[]), Err(expected));
    }
}

#[tokio::test]
async fn a_reader_gets_the_rewritten_bytes_and_the_end() {
    let sent = block(&[(":authority", SOCKET_PATH)]);
    let data = frame(0, 0, 1, &vec![7; 60_000]);
    let input = connection(&[frame(HEADERS, END_HEADERS, 1, &sent), data.clone()]);
    let expected = block(&[(":authority", "localhost")]);
    let output = connection(&[frame(HEADERS, END_HEADERS, 1, &expected), data]);
    let (near, mut far) = tokio::io::duplex(100);
    let (read, ()) = tokio::join!(
        async {
            let mut read = Vec::new();
            Readable::new(near).read_to_end(&mut read).await.unwrap();
            read
        },
        async {
            tokio::io::AsyncWriteExt::write_all(&mut far, &input).await.unwrap();
            drop(far);
        }
    );
    assert_eq!(read, output);
}

fn any_frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let kind = prop_oneof![Just(HEADERS), Just(CONTINUATION), Just(0), Just(4), any::<u8>()];
    let content = prop_oneof![
        Just(block(&[(":authority", SOCKET_PATH), (":path", "/x")])),
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(vec![0xbe, 0x82, 0x41, 0x03, b'a', b'%', b'b']),
    ];
    let one = (kind, any::<u8>(), 0..3_u8, content)
        .prop_map(|(kind, flags, stream, content)| frame(kind, flags, stream, &content));
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn any_bytes_at_all_are_rewritten_or_refused(bytes: Vec<u8>, has_preface: bool) {
        let preface: &[u8] = if has_preface { PREFACE } else { &[] };
        let _ = rewrite(&[preface, &bytes].concat(), &[]);
    }

    #[test]
    fn where_the_pieces_are_cut_makes_no_difference(
        frames in any_frames(), sizes in proptest::collection::vec(1..20_usize, 0..200),
    ) {
        let input = connection(&frames);
        prop_assert_eq!(rewrite(&input, &sizes), rewrite(&input, &[]));
    }

    #[test]
    fn what_was_rewritten_is_not_changed_again(frames in any_frames()) {
        if let Ok(once) = rewrite(&connection(&frames), &[]) {
            prop_assert_eq!(rewrite(&once, &[]), Ok(once.clone()));
        }
    }
}
