#include "sign/jwt.h"

#include <gtest/gtest.h>

#include <vector>

#include "sign/testing/test_token.h"

namespace gpusched::sign {
namespace {

constexpr int64_t kNow = 1'700'000'000;
constexpr JwtAlgorithm kAll[] = {JwtAlgorithm::kEdDsa, JwtAlgorithm::kEs256, JwtAlgorithm::kRs256,
                                 JwtAlgorithm::kHs256};
const JwtExpectation kExpected{.issuer = "https://idp.example", .audience = "gpus", .leeway_seconds = 10};

std::shared_ptr<const JwtKeySet> keys_of(const std::string& set) {
  const auto parsed = JwtKeySet::parse(set, {.secrets_allowed = true});
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? *parsed : nullptr;
}

/// Right claims, with other members behind them.
std::string claims(const std::string& more = "", const std::string& times = "") {
  return R"({"iss":"https://idp.example","aud":"gpus","sub":"ana")" +
         (times.empty() ? R"(,"exp":)" + std::to_string(kNow + 60) : times) + more + "}";
}

class Jwt : public testing::Test {
 protected:
  JwtOutcome verify(const std::string& token) const { return verify_jwt(token, *keys_, kExpected, kNow); }
  JwtOutcome verify_claims(const std::string& text) const { return verify(key_.token(text)); }
  void expect_claims_refused(const std::string& text, const std::string& why) const {
    const JwtOutcome outcome = verify_claims(text);
    EXPECT_EQ(outcome.fault, JwtFault::kClaims) << text;
    EXPECT_NE(outcome.why.find(why), std::string::npos) << outcome.why;
    EXPECT_FALSE(outcome.claims.has_value());
  }
  /// Refused without a word of why: nobody has signed it.
  void expect_nobodys(const std::string& token, JwtFault fault = JwtFault::kMalformed) const {
    const JwtOutcome outcome = verify(token);
    EXPECT_EQ(outcome.fault, fault) << token.substr(0, 300);
    EXPECT_EQ(outcome.why, "");
    EXPECT_FALSE(outcome.claims.has_value());
  }

  const TestTokenKey key_{JwtAlgorithm::kEs256};
  const std::shared_ptr<const JwtKeySet> keys_ = keys_of(key_.set());
};

TEST_F(Jwt, OfEachAlgorithmIsTaken) {
  for (const JwtAlgorithm algorithm : kAll) {
    const TestTokenKey key(algorithm);
    const JwtOutcome outcome =
        verify_jwt(key.token(claims(R"(,"jti":"t-1","iat":1699999999,"groups":["a","ml"])")),
                   *keys_of(key.set()), kExpected, kNow);
    ASSERT_EQ(outcome.fault, JwtFault::kNone) << to_string(algorithm) << outcome.why;
    EXPECT_EQ(outcome.claims->subject(), "ana");
    EXPECT_EQ(outcome.claims->id(), "t-1");
    EXPECT_EQ(outcome.claims->issued_at(), 1'699'999'999);
    EXPECT_EQ(outcome.claims->expires_at(), kNow + 60);
  }
}

TEST_F(Jwt, ClaimsAreFoundByTheirPath) {
  const JwtOutcome outcome =
      verify_claims(claims(R"(,"groups":["a","ml",7],"one":"ml","n":7,"realm":{"roles":["x"]},"a.b":"c")"));
  ASSERT_TRUE(outcome.claims.has_value());
  const auto has = [&](std::vector<std::string> path, const char* value) {
    return outcome.claims->has(path, value);
  };
  EXPECT_TRUE(has({"groups"}, "ml"));
  EXPECT_TRUE(has({"one"}, "ml"));
  EXPECT_TRUE(has({"realm", "roles"}, "x"));
  EXPECT_TRUE(has({"a.b"}, "c"));
  EXPECT_FALSE(has({"groups"}, "m"));
  EXPECT_FALSE(has({"groups"}, "7"));
  EXPECT_FALSE(has({"n"}, "7"));
  EXPECT_FALSE(has({"realm"}, "x"));
  EXPECT_FALSE(has({"one", "roles"}, "x"));
  EXPECT_FALSE(has({}, "x"));
  EXPECT_FALSE(has({"nothing"}, ""));
  EXPECT_EQ(outcome.claims->text(std::vector<std::string>{"one"}), "ml");
  EXPECT_EQ(outcome.claims->text(std::vector<std::string>{"groups"}), std::nullopt);
}

TEST_F(Jwt, WithoutASignatureIsNobodys) {
  for (const char* none : {"none", "None", "NONE", "nOnE", "", " none"}) {
    const std::string header = R"({"alg":")" + std::string(none) + R"(","kid":"k1"})";
    const std::string text = base64url_encoded(header) + "." + base64url_encoded(claims());
    expect_nobodys(text + ".");
    expect_nobodys(text);
    expect_nobodys(key_.token(header, claims()));
  }
  const std::string right = key_.token(claims());
  expect_nobodys(right.substr(0, right.rfind('.') + 1));
  expect_nobodys(right.substr(0, right.rfind('.')));
}

TEST_F(Jwt, OfAnotherAlgorithmThanItsKeysIsNobodys) {
  // The old trick: the public key, which everybody has, taken for a secret.
  const TestTokenKey rsa(JwtAlgorithm::kRs256);
  const auto keys = keys_of(rsa.set());
  const std::string text =
      base64url_encoded(R"({"alg":"HS256","kid":"k1"})") + "." + base64url_encoded(claims());
  for (const std::string& secret :
       {rsa.jwk(), rsa.set(), rsa.jwk().substr(rsa.jwk().find("\"n\":\"") + 5, 342)}) {
    const std::string token = text + "." + base64url_encoded(TestTokenKey::hmac(secret, text));
    EXPECT_EQ(verify_jwt(token, *keys, kExpected, kNow).fault, JwtFault::kMalformed);
  }
  for (const char* algorithm :
       {"EdDSA", "RS256", "HS256", "ES384", "ES256K", "es256", "PS256", "RS512", "HS512"})
    expect_nobodys(key_.token(R"({"alg":")" + std::string(algorithm) + R"(","kid":"k1"})", claims()));
}

TEST_F(Jwt, SignedByAnotherKeyIsNobodys) {
  for (const JwtAlgorithm algorithm : {JwtAlgorithm::kEdDsa, JwtAlgorithm::kEs256, JwtAlgorithm::kRs256}) {
    const TestTokenKey first(algorithm, "a"), second(algorithm, "b"), stranger(algorithm, "a");
    const auto keys = keys_of("{\"keys\":[" + first.jwk() + "," + second.jwk() + "]}");
    const auto fault_of = [&](const std::string& token) {
      return verify_jwt(token, *keys, kExpected, kNow).fault;
    };
    EXPECT_EQ(fault_of(second.token(claims())), JwtFault::kNone);
    EXPECT_EQ(fault_of(second.token(first.header(), claims())), JwtFault::kBadSignature);
    EXPECT_EQ(fault_of(stranger.token(claims())), JwtFault::kBadSignature);
  }
}

TEST_F(Jwt, WithItsOwnKeyInItsHeaderIsNobodys) {
  const TestTokenKey own(JwtAlgorithm::kEs256, "mine");
  expect_nobodys(own.token(R"({"alg":"ES256","kid":"mine","jwk":)" + own.jwk() + "}", claims()),
                 JwtFault::kUnknownKey);
  expect_nobodys(own.token(R"({"alg":"ES256","kid":"k1","jwk":)" + own.jwk() + "}", claims()),
                 JwtFault::kBadSignature);
  expect_nobodys(own.token(R"({"alg":"ES256","kid":"mine","jku":"http://127.0.0.1:1/keys"})", claims()),
                 JwtFault::kUnknownKey);
}

TEST_F(Jwt, AKidIsComparedAndNothingElse) {
  for (const char* kid : {"k2", "K1", "../k1", "../../../../dev/null", "/etc/passwd", "k1/../k1", "k1\\u0000",
                          "k1 ", "k1' OR '1'='1", "%2e%2e%2fk1", ""})
    expect_nobodys(key_.token(R"({"alg":"ES256","kid":")" + std::string(kid) + "\"}", claims()),
                   JwtFault::kUnknownKey);
  expect_nobodys(key_.token(R"({"alg":"ES256"})", claims()));
  expect_nobodys(key_.token(R"({"alg":"ES256","kid":1})", claims()));
  expect_nobodys(key_.token(R"({"alg":"ES256","kid":["k1"]})", claims()));
  expect_nobodys(key_.token(R"({"alg":"ES256","kid":null})", claims()));
}

TEST_F(Jwt, WithAHeaderThatWeCannotRespectIsNobodys) {
  for (const char* more :
       {R"(,"crit":["exp"])", R"(,"crit":[])", R"(,"typ":"secevent+jwt")", R"(,"typ":1)", R"(,"alg":"ES256")",
        R"(,"kid":"k1")", R"(,"x":{"y":1,"y":2})", R"(,"x":[[[[[[[[[[1]]]]]]]]]])"})
    expect_nobodys(key_.token(R"({"alg":"ES256","kid":"k1")" + std::string(more) + "}", claims()));
  for (const char* header :
       {"", "1", "[]", "{", R"({"alg":"ES256","kid":"k1"}x)", R"({'alg':'ES256'})",
        "{\"alg\":\"ES256\",\"kid\":\"k1\xff\"}", "\xef\xbb\xbf{\"alg\":\"ES256\",\"kid\":\"k1\"}"})
    expect_nobodys(key_.token(header, claims()));
  for (const char* type : {"JWT", "at+jwt", "jwt"})
    EXPECT_EQ(verify(key_.token(R"({"alg":"ES256","kid":"k1","typ":")" + std::string(type) + "\"}", claims()))
                  .fault,
              JwtFault::kNone);
}

TEST_F(Jwt, HasOneSpelling) {
  const std::string right = key_.token(claims());
  ASSERT_EQ(verify(right).fault, JwtFault::kNone);
  const std::size_t first = right.find('.'), second = right.rfind('.');
  for (const std::string& other :
       {right + ".", "." + right, right + "=", right + "==", right + " ", right + "\n", " " + right,
        right + ".x", right.substr(0, first) + "." + right.substr(first),
        right.substr(0, first) + "=" + right.substr(first), std::string("."), std::string(".."),
        std::string("..."), std::string(), right.substr(first)})
    expect_nobodys(other);
  // The signature covers this change, so the signature is what is wrong first.
  expect_nobodys(right.substr(0, second) + "=" + right.substr(second), JwtFault::kBadSignature);
  const std::string padded = base64url_encoded(key_.header()) + "." + base64url_encoded(claims(" ")) + "==";
  EXPECT_EQ(verify(padded + "." + base64url_encoded(key_.signature(padded))).fault, JwtFault::kClaims);
  // 86 letters for 64 bytes: the last one has four bits that mean nothing.
  const std::size_t at = kBase64UrlLetters.find(right.back());
  for (std::size_t bit : {1, 2, 4, 8}) {
    std::string bent = right;
    bent.back() = kBase64UrlLetters[at ^ bit];
    expect_nobodys(bent);
  }
  for (std::size_t i = 0; i < right.size(); ++i) {
    std::string changed = right;
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    EXPECT_NE(verify(changed).fault, JwtFault::kNone) << i;
    EXPECT_NE(verify(right.substr(0, i)).fault, JwtFault::kNone) << i;
  }
}

TEST_F(Jwt, LongerThanEightKibibytesIsNotLookedAt) {
  const std::string most = R"(,"x":")" + std::string(kJwtBytesMax, 'x') + "\"";
  const auto sized = [&](std::size_t size) {
    std::string token;
    for (std::size_t pad = size * 3 / 4; token.size() < size || token.empty(); ++pad)
      token = key_.token(claims(R"(,"x":")" + std::string(pad, 'x') + "\""));
    return token;
  };
  EXPECT_EQ(verify(sized(kJwtBytesMax - 600)).fault, JwtFault::kNone);
  expect_nobodys(key_.token(claims(most)));
  expect_nobodys(key_.token(claims()) + std::string(1 << 20, 'A'));
  expect_nobodys(std::string(1 << 20, '.'));
  expect_nobodys(std::string(1 << 20, 'A'));
}

TEST_F(Jwt, OfAnotherIssuerOrForAnotherIsTold) {
  const std::string exp = R"(,"exp":1700000060)";
  for (const char* issuer : {R"("https://idp.example/")", R"("https://idp.exampl")",
                             R"("HTTPS://idp.example")", R"(["https://idp.example"])", "1", "null"})
    expect_claims_refused(R"({"aud":"gpus","sub":"ana","iss":)" + std::string(issuer) + exp + "}", "issuer");
  expect_claims_refused(R"({"aud":"gpus","sub":"ana")" + exp + "}", "issuer");
  for (const char* audience :
       {R"("gpu")", R"("GPUS")", R"(["a","b"])", "[]", "1", "{}", R"([["gpus"]])", R"("gpus other")"})
    expect_claims_refused(
        R"({"iss":"https://idp.example","sub":"ana","aud":)" + std::string(audience) + exp + "}", "audience");
  expect_claims_refused(R"({"iss":"https://idp.example","sub":"ana")" + exp + "}", "audience");
  EXPECT_EQ(verify_claims(R"({"iss":"https://idp.example","sub":"ana","aud":["x","gpus"])" + exp + "}").fault,
            JwtFault::kNone);
}

TEST_F(Jwt, IsValidInItsTimeAndTheLeewayAlone) {
  const auto fault_at = [&](const std::string& times) { return verify_claims(claims("", times)).fault; };
  EXPECT_EQ(fault_at(R"(,"exp":1699999991)"), JwtFault::kNone);
  expect_claims_refused(claims("", R"(,"exp":1699999990)"), "expired 10 s ago");
  EXPECT_EQ(fault_at(R"(,"exp":1700000060.5,"nbf":1700000010,"iat":1700000010)"), JwtFault::kNone);
  expect_claims_refused(claims("", R"(,"exp":1700000060,"nbf":1700000011)"), "not valid (nbf)");
  expect_claims_refused(claims("", R"(,"exp":1700000060,"iat":1700000011)"), "in the future");
  // No setting makes the leeway longer than a minute.
  const JwtExpectation generous{.issuer = kExpected.issuer, .audience = "gpus", .leeway_seconds = 1'000'000};
  EXPECT_EQ(verify_jwt(key_.token(claims("", R"(,"exp":1699999940)")), *keys_, generous, kNow).fault,
            JwtFault::kClaims);
}

TEST_F(Jwt, WithoutAnEndOrAHolderIsRefused) {
  const std::string head = R"({"iss":"https://idp.example","aud":"gpus","sub":"ana")";
  for (const char* exp :
       {"", R"(,"exp":"1700000060")", R"(,"exp":null)", R"(,"exp":-1)", R"(,"exp":1e300)",
        R"(,"exp":[1700000060])", R"(,"exp":1700000060,"nbf":"x")", R"(,"exp":1700000060,"iat":true)",
        R"(,"exp":9223372036854775807)", R"(,"exp":18446744073709551615)"})
    expect_claims_refused(head + exp + "}", "seconds since 1970");
  for (const std::string& subject : {std::string(R"("")"), std::string("1"), std::string(R"("a\nb")"),
                                     std::string(R"("a\u0000")"), "\"" + std::string(256, 'a') + "\""})
    expect_claims_refused(
        R"({"iss":"https://idp.example","aud":"gpus","exp":1700000060,"sub":)" + subject + "}", "subject");
  expect_claims_refused(R"({"iss":"https://idp.example","aud":"gpus","exp":1700000060})", "subject");
  expect_claims_refused(claims(R"(,"jti":1)"), "jti");
}

TEST_F(Jwt, WithAMemberTwiceIsRefused) {
  for (const char* more :
       {R"(,"sub":"root")", R"(,"exp":9999999999)", R"(,"x":[{"y":1,"y":1}])", R"(,"\u0073ub":"root")"})
    expect_claims_refused(claims(more), "twice");
  for (const char* text : {"", "1", "[]", "null", "{", "\"a\"", "{\"iss\":\xff}"})
    expect_claims_refused(text, "no JSON object");
}

TEST(JwtVectors, OfTheStandardsVerify) {
  struct Vector {
    const char* jwk;
    const char* text;
    const char* signature;
  };
  constexpr const char* kJoe =
      "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
  const Vector vectors[] = {
      // RFC 7515, A.1.
      {R"("kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")",
       "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
      // RFC 7515, A.2.
      {R"("kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEz)"
       R"(P1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e)"
       R"(-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2et)"
       R"(hFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ")",
       "eyJhbGciOiJSUzI1NiJ9",
       "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_"
       "O8W2Fp5jujGbds9uJdbF9CUAr7"
       "t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_"
       "eSN9383LcOLn6_dO--xi1"
       "2jzDwusC-"
       "eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_"
       "IoypGl"
       "UPQGe77Rw"},
      // RFC 7515, A.3.
      {R"("kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0")",
       "eyJhbGciOiJFUzI1NiJ9",
       "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
      // RFC 8037, A.4.
      {R"("kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")",
       "eyJhbGciOiJFZERTQSJ9",
       "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"},
  };
  for (const Vector& vector : vectors) {
    const auto keys = keys_of(R"({"keys":[{"kid":"v",)" + std::string(vector.jwk) + "}]}");
    ASSERT_NE(keys, nullptr);
    const bool is_ed = std::string(vector.jwk).find("Ed25519") != std::string::npos;
    std::string text =
        vector.text + std::string(".") + (is_ed ? "RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc" : kJoe);
    const std::string signature = *base64url_decoded(vector.signature);
    EXPECT_TRUE(keys->find("v")->is_signed(text, signature)) << vector.text;
    for (std::size_t i = 0; i < signature.size(); ++i) {
      std::string bent = signature;
      bent[i] = static_cast<char>(bent[i] ^ 1);
      EXPECT_FALSE(keys->find("v")->is_signed(text, bent)) << vector.text << i;
      EXPECT_FALSE(keys->find("v")->is_signed(text, signature.substr(0, i))) << vector.text << i;
    }
    EXPECT_FALSE(keys->find("v")->is_signed(text, signature + '\0'));
    text.back() = text.back() == 'x' ? 'y' : 'x';
    EXPECT_FALSE(keys->find("v")->is_signed(text, signature));
    EXPECT_FALSE(keys->find("v")->is_signed("", signature));
  }
}

TEST(JwtVectors, ASignatureOfZerosIsNone) {
  const TestTokenKey key(JwtAlgorithm::kEs256);
  const auto keys = keys_of(key.set());
  EXPECT_FALSE(keys->find("k1")->is_signed("text", std::string(64, '\0')));
  EXPECT_FALSE(keys->find("k1")->is_signed("text", std::string(64, '\xff')));
  EXPECT_FALSE(keys->find("k1")->is_signed("text", ""));
}

class Jwks : public testing::Test {
 protected:
  static std::string problem(const std::string& text, const JwksOptions& options = {}) {
    const auto parsed = JwtKeySet::parse(text, options);
    return parsed.ok() ? "" : parsed.error().message;
  }
  static void expect_refused(const std::string& text, const std::string& why) {
    const std::string message = problem(text);
    EXPECT_NE(message.find(why), std::string::npos) << text.substr(0, 200) << "\n" << message;
  }
};

TEST_F(Jwks, AreTakenFromASetWithOthersBetween) {
  const TestTokenKey ed(JwtAlgorithm::kEdDsa, "a"), rsa(JwtAlgorithm::kRs256, "b");
  const std::string others =
      R"({"kty":"EC","crv":"P-384","kid":"c","x":"AA","y":"AA"},{"kty":"X","kid":"d"},{"kty":"OKP","crv":"X25519","kid":"e"},)" +
      rsa.jwk(R"("use":"enc",)") + "," + rsa.jwk(R"("alg":"RS512",)") + "," +
      rsa.jwk(R"("key_ops":["encrypt"],)") + "," + R"({"kty":"OKP","crv":"Ed25519","x":"AA"},)";
  const auto set = JwtKeySet::parse("{\"keys\":[" + others + ed.jwk(R"("use":"sig","alg":"EdDSA",)") + "," +
                                        rsa.jwk(R"("key_ops":["verify"],)") + "]}",
                                    {});
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ((*set)->size(), 2U);
  EXPECT_EQ((*set)->find("a")->algorithm(), JwtAlgorithm::kEdDsa);
  EXPECT_EQ((*set)->find("b")->algorithm(), JwtAlgorithm::kRs256);
  EXPECT_EQ((*set)->find("c"), nullptr);
}

TEST_F(Jwks, OfAlgorithmsThatAreNotAllowedArePassedOver) {
  const TestTokenKey ed(JwtAlgorithm::kEdDsa, "a"), rsa(JwtAlgorithm::kRs256, "b");
  const JwtAlgorithm allowed[] = {JwtAlgorithm::kEdDsa};
  const auto set =
      JwtKeySet::parse("{\"keys\":[" + ed.jwk() + "," + rsa.jwk() + "]}", {.algorithms = allowed});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ((*set)->size(), 1U);
  EXPECT_NE(problem(rsa.set(), {.algorithms = allowed}).find("no usable key"), std::string::npos);
}

TEST_F(Jwks, WithAPrivateKeyAreRefused) {
  for (const JwtAlgorithm algorithm : {JwtAlgorithm::kEdDsa, JwtAlgorithm::kEs256, JwtAlgorithm::kRs256}) {
    for (const char* member : {R"("d":"AA",)", R"("dp":"AA",)", R"("use":"enc","d":"AA",)"})
      expect_refused(TestTokenKey(algorithm).set(member), "private key");
  }
  expect_refused(R"({"keys":[{"kty":"EC","crv":"P-384","d":"AA"}]})", "private key");
  expect_refused(TestTokenKey(JwtAlgorithm::kHs256).set(), "is a secret");
}

TEST_F(Jwks, ThatAreTooWeakAreRefused) {
  expect_refused(TestTokenKey(JwtAlgorithm::kRs256, "k", 1'024).set(), "has 1024 bits");
  expect_refused(R"({"keys":[{"kty":"RSA","kid":"k","e":"AQAB","n":")" +
                     base64url_encoded(std::string(20'000, '\x7f')) + "\"}]}",
                 "has 8193 bits");
  const auto weak = JwtKeySet::parse(
      R"({"keys":[{"kty":"oct","kid":"k","k":")" + base64url_encoded(std::string(31, 'x')) + "\"}]}",
      {.secrets_allowed = true});
  ASSERT_FALSE(weak.ok());
  EXPECT_NE(weak.error().message.find("32 to 1024 bytes"), std::string::npos);
}

TEST_F(Jwks, ThatAreMalformedAreRefused) {
  const TestTokenKey key(JwtAlgorithm::kEs256), rsa(JwtAlgorithm::kRs256);
  for (const char* text :
       {"", "{}", "[]", R"({"keys":{}})", R"({"keys":[],"keys":[]})", "{\"keys\":[[[[[[[[[[[]]]]]]]]]]]}"})
    expect_refused(text, "no JSON Web Key Set");
  expect_refused(R"({"keys":[]})", "no usable key");
  expect_refused(R"({"keys":[1]})", "no object");
  expect_refused("{\"keys\":[" + key.jwk() + "," + key.jwk() + "]}", "the kid of another");
  // A point that is not on the curve, one of another length, padding.
  const std::string zeros = base64url_encoded(std::string(32, '\1'));
  const std::string ec = R"({"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":")";
  expect_refused(ec + zeros + R"(","y":")" + zeros + "\"}]}", "no point");
  expect_refused(ec + zeros + "AA" + R"(","y":")" + zeros + "\"}]}", "32 bytes");
  expect_refused(ec + zeros + R"(=","y":")" + zeros + "\"}]}", "32 bytes");
  expect_refused(ec + zeros + "\"}]}", "32 bytes");
  expect_refused(R"({"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"AA"}]})", "32 bytes");
  const std::string n = base64url_encoded(std::string(256, '\xff'));
  for (const char* e : {"AQ", "Ag", "AQABAQABAQABAQAB"})
    expect_refused(R"({"keys":[{"kty":"RSA","kid":"k","e":")" + std::string(e) + R"(","n":")" + n + "\"}]}",
                   "no RSA key has");
  expect_refused(R"({"keys":[{"kty":"RSA","kid":"k","n":")" + n + "\"}]}", "no n and e");
  expect_refused(std::string(kJwksBytesMax + 1, ' '), "64 KiB");
  std::string many;
  for (int i = 0; i < 65; ++i) many += (i == 0 ? "" : ",") + std::string("{}");
  expect_refused("{\"keys\":[" + many + "]}", "more than 64");
}

}  // namespace
}  // namespace gpusched::sign
