#include "shim/endpoint/http_answer.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched::shim {
namespace {

using State = HttpAnswer::State;

/// Reads some bytes at a time; then the end, where one is wanted.
HttpAnswer read(const std::string& text, std::size_t at_once = 1, bool ends = false,
                std::size_t body_max = 100) {
  HttpAnswer answer(body_max);
  for (std::size_t at = 0; at < text.size(); at += at_once)
    answer.add(std::string_view(text).substr(at, at_once));
  if (ends) answer.end();
  return answer;
}

TEST(HttpAnswer, IsReadInPiecesOfAnySize) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nDate: today\r\ncontent-LENGTH:  5 \r\n\r\nhelloand what is no part of it";
  for (const std::size_t at_once : {1u, 2u, 7u, 1'000u}) {
    HttpAnswer answer = read(text, at_once);
    EXPECT_EQ(answer.state(), State::kWhole);
    EXPECT_EQ(answer.status(), 200);
    EXPECT_EQ(answer.status_words(), "200 OK");
    EXPECT_EQ(answer.body(), "hello");
  }
  EXPECT_TRUE(HttpAnswer(1).is_empty());
  EXPECT_FALSE(read("H").is_empty());
}

TEST(HttpAnswer, ABodyMayComeInChunks) {
  for (const std::size_t at_once : {1u, 3u, 1'000u}) {
    HttpAnswer answer = read(
        "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: "
        "1\r\n\r\n",
        at_once);
    EXPECT_EQ(answer.state(), State::kWhole);
    EXPECT_EQ(answer.status(), 500);
    EXPECT_EQ(answer.body(), "abc0123456789");
  }
}

TEST(HttpAnswer, NoChunksAreAnEmptyBody) {
  for (const std::size_t at_once : {1u, 2u, 3u, 4u, 5u, 1'000u}) {
    HttpAnswer answer = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", at_once);
    EXPECT_EQ(answer.state(), State::kWhole);
    EXPECT_EQ(answer.body(), "");
  }
}

TEST(HttpAnswer, ABodyWithoutALengthEndsWithTheConnection) {
  EXPECT_EQ(read("HTTP/1.0 200 OK\r\n\r\nall").state(), State::kUnderWay);
  HttpAnswer answer = read("HTTP/1.0 200 OK\n\nall", 4, true);
  EXPECT_EQ(answer.state(), State::kWhole);
  EXPECT_EQ(answer.body(), "all");
}

TEST(HttpAnswer, SomeHaveNoBody) {
  EXPECT_EQ(read("HTTP/1.1 204 No Content\r\n\r\n").state(), State::kWhole);
  EXPECT_EQ(read("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n").state(), State::kWhole);
  HttpAnswer later = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_EQ(later.state(), State::kWhole);
  EXPECT_EQ(later.status(), 201);
}

TEST(HttpAnswer, OneThatIsCutShortIsNone) {
  for (const char* text : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"})
    EXPECT_EQ(read(text, 100, true).state(), State::kCutShort) << text;
}

TEST(HttpAnswer, ALargerBodyIsNotKept) {
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 100, false, 4).state(), State::kTooLarge);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n\r\nhello", 100, false, 4).state(), State::kTooLarge);
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  EXPECT_EQ(read(chunked, 100, false, 4).state(), State::kTooLarge);
  EXPECT_EQ(read(chunked, 100, false, 5).state(), State::kWhole);
}

TEST(HttpAnswer, WhatIsNoHttpIsMalformed) {
  for (const char* text :
       {"SSH", "HTTP/2", "HTTP/2 200\r\n", "HTTP/1.5 200 OK\r\n", "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000 OK\r\n", "HTTP/1.1 099 OK\r\n", "HTTP/1.1 400 \x1b[31m\r\n",
        "HTTP/1.1 200 OK\r\nno header\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n"})
    EXPECT_EQ(read(text, 3).state(), State::kMalformed) << text;
  EXPECT_EQ(read("HTTP/1.1 200 " + std::string(70'000, 'x'), 100).state(), State::kMalformed);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x'), 100).state(), State::kMalformed);
  EXPECT_EQ(read("HTTP/1.1 400 \xc3\xa4\tx\r\nContent-Length: 0\r\n\r\n").status_words(), "400 ???x");
}

TEST(HttpAnswer, LinesBetweenChunksAreBounded) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(read(head + "1;" + std::string(70'000, 'x'), 100).state(), State::kMalformed);
  EXPECT_EQ(read(head + "0\r\nT: " + std::string(70'000, 'x'), 100).state(), State::kMalformed);
  std::string many = head;
  for (int i = 0; i < 20'000; ++i) many += "1;x=y\r\na\r\n";
  EXPECT_EQ(read(many + "0\r\n\r\n", 100, false, 20'000).state(), State::kWhole);
  EXPECT_EQ(read(many + "0\r\n\r\n", 1'000'000, false, 20'000).state(), State::kWhole);
}

TEST(HttpAnswer, InformationalAnswersWithoutEndAreBounded) {
  std::string many;
  for (int i = 0; i < 4'000; ++i) many += "HTTP/1.1 102 Processing\r\n\r\n";
  EXPECT_EQ(read(many, 100).state(), State::kMalformed);
}

TEST(HttpAnswer, StatusIsKnownWithItsLine) {
  EXPECT_EQ(read("HTTP/1.1 503 Busy\r").status(), 0);
  EXPECT_EQ(read("HTTP/1.1 503 Busy\r\n").status(), 503);
  EXPECT_EQ(read("HTTP/1.1 100 Continue\r\n\r\n").status(), 0);
}

}  // namespace
}  // namespace gpusched::shim
