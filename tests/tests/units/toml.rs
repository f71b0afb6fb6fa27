use proptest::prelude::*;
use shunt_tests::toml::*;

proptest! {
    #[test]
    fn texts_survive(list in prop::collection::vec(any::<String>(), 0..5)) {
        let quoted: Vec<String> = list.iter().map(|one| quote(one)).collect();
        let line = format!("[{}]", quoted.join(", "));
        prop_assert!(!line.contains('\n'), "{}", line);
        prop_assert_eq!(texts(&line), Some(list));
    }

    #[test]
    fn random_text_never_panics(line in ".{0,40}") {
        let _ = (text(&line), texts(&line), text(&format!("\"{line}\"")), texts(&format!("[{line}]")));
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for line in ["", "[", "[\"a\" \"b\"]", "[a]", "\"a\"", "[\"a]", "[\"\\q\"]", "[\"\\u12\"]"] {
        assert_eq!(texts(line), None, "{line}");
    }
    assert_eq!(texts("[ \"a\" , ]"), Some(vec!["a".to_owned()]));
    assert_eq!(text("\"a\"b"), None);
}
