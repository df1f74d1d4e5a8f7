use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn lines(headers: &[Header]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    headers.iter().map(|it| format!("{}: {}", text(&it.name), text(&it.value))).collect()
}

/// Blocks of one connection: bytes, the headers in them, the size of the table after them.
type Vectors = [(&'static str, &'static [&'static str], usize)];

fn check(vectors: &Vectors, table: usize) {
    let mut decoder = Decoder { table: Table::new(table) };
    for (block, expected, size) in vectors {
        let headers = decoder.decode(&bytes(block)).unwrap();
        assert_eq!(lines(&headers), *expected);
        assert_eq!(decoder.table.size(), *size);
    }
}

const FIRST: &[&str] =
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
const SECOND: &[&str] = &[
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
    "cache-control: no-cache",
];
const THIRD: &[&str] = &[
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
];
const ANSWER: &[&str] = &[
    ":status: 302",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const ANSWER_2: &[&str] = &[
    ":status: 307",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const ANSWER_3: &[&str] = &[
    ":status: 200",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:22 GMT",
    "location: https://www.example.com",
    "content-encoding: gzip",
    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

#[test]
fn the_single_fields_of_appendix_c_2_are_read() {
    check(
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &["custom-key: custom-header"],
            55,
        )],
        4096,
    );
    check(&[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)], 4096);
    check(&[("82", &[":method: GET"], 0)], 4096);
    let secret = bytes("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let headers = Decoder::default().decode(&secret).unwrap();
    assert_eq!(lines(&headers), ["password: secret"]);
    assert!(headers[0].is_sensitive);
}

#[test]
fn the_requests_of_appendix_c_3_are_read() {
    check(
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST, 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND, 110),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                THIRD,
                164,
            ),
        ],
        4096,
    );
}

#[test]
fn the_huffman_requests_of_appendix_c_4_are_read() {
    check(
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST, 57),
            ("8286 84be 5886 a8eb 1064 9cbf", SECOND, 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD, 164),
        ],
        4096,
    );
}

#[test]
fn the_answers_of_appendix_c_5_are_read_with_eviction() {
    check(
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
                 6c65 2e63 6f6d",
                ANSWER,
                222,
            ),
            ("4803 3330 37c1 c0bf", ANSWER_2, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
                 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
                 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
                 3d31",
                ANSWER_3,
                215,
            ),
        ],
        256,
    );
}

#[test]
fn the_huffman_answers_of_appendix_c_6_are_read_with_eviction() {
    check(
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                ANSWER,
                222,
            ),
            ("4883 640e ffc1 c0bf", ANSWER_2, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                ANSWER_3,
                215,
            ),
        ],
        256,
    );
}

#[test]
fn ill_formed_blocks_are_refused() {
    let rows = [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("7f", HpackError::Short),
        ("ffff ffff ff", HpackError::Number),
        ("4005 61", HpackError::Short),
        ("40", HpackError::Short),
        ("82 20", HpackError::Resize),
        ("3fe2 1f", HpackError::Resize),
        ("0081 ff 00", HpackError::Huffman),
    ];
    for (block, expected) in rows {
        assert_eq!(Decoder::default().decode(&bytes(block)), Err(expected), "{block}");
    }
}

#[test]
fn a_small_block_that_says_much_is_refused() {
    let mut decoder = Decoder::default();
    let large = Header { name: b"n".to_vec(), value: vec![b'v'; 4000], is_sensitive: false };
    let mut block = Vec::new();
    encode(&large, &mut block);
    block[0] = 0b0100_0000;
    decoder.decode(&block).unwrap();
    assert_eq!(decoder.decode(&[0xbe; 16]).unwrap().len(), 16);
    assert_eq!(decoder.decode(&[0xbe; 17]), Err(HpackError::TooLarge));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        fields in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..400), any::<Vec<u8>>()), 0..20,
        ),
    ) {
        let headers: Vec<Header> = fields
            .into_iter()
            .map(|(is_sensitive, name, value)| Header { name, value, is_sensitive })
            .collect();
        let mut block = Vec::new();
        for header in &headers {
            encode(header, &mut block);
        }
        prop_assert_eq!(Decoder::default().decode(&block), Ok(headers));
    }

    #[test]
    fn any_blocks_at_all_are_read_or_refused(blocks: Vec<Vec<u8>>) {
        let mut decoder = Decoder::default();
        for block in blocks {
            if decoder.decode(&block).is_err() {
                break;
            }
            prop_assert!(decoder.table.size() <= TABLE_BYTES);
        }
    }
}
