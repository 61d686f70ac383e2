"""The pure rooms' libraries reach for no clock, randomness, thread, file, socket or environment.

Reads what each library leaves undefined. Plain C symbols must be on a short list; C++ symbols must be the
standard library's or a pure room's, and none of the impure parts of the standard library.
"""

import pathlib
import re
import shutil
import subprocess

import pytest

# What compilers and containers need from C; strto* and snprintf read and write memory only.
C_ALLOWED = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|__dso_handle|__gxx_personality_v0|_Unwind_Resume|__stack_chk_fail|"
    r"__cxa_(allocate_exception|atexit|bad_cast|bad_typeid|begin_catch|call_terminate|call_unexpected|deleted_virtual|"
    r"end_catch|free_exception|get_exception_ptr|guard_abort|guard_acquire|guard_release|init_primary_exception|"
    r"pure_virtual|rethrow|throw|throw_bad_array_new_length)|__dynamic_cast|"
    r"__libc_single_threaded|"  # Whether a shared_ptr must count atomically.
    r"mem(cmp|cpy|move|set|chr)|str(len|cmp|ncmp|chr|tol|toul|toll|toull)|__isoc23_strto(l|ul|ll|ull)|bcmp|abs|"
    r"__(memcpy|memmove|memset)_chk|snprintf|__snprintf_chk|abort|__assert_fail|"
    r"__(u?divti3|u?modti3|multi3|popcountdi2|clzdi2|ctzdi2|cpu_model|cpu_indicator_init)|"
    r"__(asan|ubsan|tsan|sanitizer|sancov|llvm|start|stop)_.*")
# base/check.cc alone writes to the error stream before it aborts.
C_ALLOWED_IN = {"check.cc.o": re.compile(r"fprintf|__fprintf_chk|fflush|fputs|stderr")}

CPP_FORBIDDEN = re.compile(
    r"\bstd::(chrono::.*clock.*::now|this_thread|thread|jthread|mutex|timed_mutex|recursive_mutex|shared_mutex|"
    r"condition_variable|__condvar|__future_base|future|promise|call_once|__once|random_device|filesystem|"
    r"basic_filebuf|basic_[io]?fstream|basic_streambuf|ios_base|basic_ios|basic_[io]stream|cout|cerr|cin|clog|locale|"
    r"__atomic_futex|__detail::__waiter)\b")
CPP_ALLOWED = re.compile(
    r"^((non-virtual thunk to|vtable for|typeinfo for|typeinfo name for|guard variable for|VTT for|construction vtable for) )?"
    r"(_ZNK?8gpusched|"  # Too long for the demangler.
    r"std::|__cxxabiv1::|__gnu_cxx::|gpusched::|boost::unordered|operator (new|delete)|fmt_none)")

# Codec translates to JSON and wire messages with other people's libraries, but is as deaf and blind otherwise.
CODEC_C_FORBIDDEN = re.compile(
    r"clock_gettime|clock_getres|gettimeofday|time|localtime(_r)?|gmtime(_r)?|nanosleep|usleep|sleep|timerfd_.*|"
    r"socket|connect|accept4?|bind|listen|send(to|msg)?|recv(from|msg)?|poll|ppoll|select|epoll_.*|getaddrinfo|"
    r"pthread_(create|join|mutex_.*|cond_.*|rwlock_.*|once)|fork|vfork|execv.*|posix_spawn.*|"
    r"rand|srand|random|drand48|getrandom|getentropy|arc4random.*|"
    r"open(64|at)?|fopen(64)?|read|pread(64)?|write|pwrite(64)?|fread|fwrite|unlink|rename|mkdir|stat|"
    r"getenv|secure_getenv|setenv|syslog|ioctl|mmap(64)?")


def undefined_symbols(library):
    """(object file, mangled, readable) for each symbol that the library's objects want from outside themselves."""
    if library is None:  # A room of headers only: what they use shows in the rooms that include them.
        return []
    assert pathlib.Path(library).is_file(), f"{library} is missing: build first (make build)"
    listed = subprocess.run(["nm", "--undefined-only", "--format=posix", library], capture_output=True, text=True,
                            check=True).stdout
    found, member = [], ""
    for line in listed.splitlines():
        header = re.fullmatch(r".*\[(.+)\]:", line)
        if header:
            member = header[1]
        elif line.strip():
            found.append((member, line.split()[0].split("@")[0]))
    names = "\n".join(symbol for _, symbol in found)
    readable = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(member, symbol, text) for (member, symbol), text in zip(found, readable)]


def impurities(symbols):
    """The symbols a pure room may not want, as 'object: symbol' lines."""
    found = []
    for member, symbol, readable in symbols:
        if symbol.startswith("_Z"):
            fine = CPP_ALLOWED.match(readable) and not CPP_FORBIDDEN.search(readable)
        else:
            extra = C_ALLOWED_IN.get(pathlib.PurePath(member).name)
            fine = C_ALLOWED.fullmatch(symbol) or (extra and extra.fullmatch(symbol))
        if not fine:
            found.append(f"{member}: {readable}")
    return found


def test_the_pure_rooms_are_the_ones_that_must_be(rooms):
    pure = {name for name, room in rooms.items() if room["pure"]}
    must_be = {"base", "model", "engine", "predict", "access", "forecast"} & set(rooms)
    assert must_be <= pure, f"not declared PURE in their CMakeLists.txt: {sorted(must_be - pure)}"
    for name in pure:
        assert set(rooms[name]["deps"]) <= pure, f"pure {name} depends on a room that is not pure"


def test_pure_rooms_want_nothing_impure(rooms):
    bad = {}
    for name, room in rooms.items():
        if room["pure"]:
            found = impurities(undefined_symbols(room["library"]))
            if found:
                bad[name] = found
    assert not bad, f"impure symbols: {bad}"


def test_codec_reads_no_clock_socket_thread_or_file(rooms):
    if "codec" not in rooms:
        pytest.skip("codec is not built in this configuration")
    found = [f"{member}: {readable}" for member, symbol, readable in undefined_symbols(rooms["codec"]["library"])
             if CODEC_C_FORBIDDEN.fullmatch(symbol)
             or (symbol.startswith("_ZNSt") and CPP_FORBIDDEN.search(readable)
                 and not re.search(r"std::(locale|ios_base|basic_(ios|istream|ostream|streambuf))\b", readable))]
    assert not found


IMPURE_LINES = {
    "clock": "#include <chrono>\nlong f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }",
    "wall clock": "#include <ctime>\nlong f() { return std::time(nullptr); }",
    "random device": "#include <random>\nunsigned f() { return std::random_device()(); }",
    "rand": "#include <cstdlib>\nint f() { return std::rand(); }",
    "thread": "#include <thread>\nvoid f() { std::thread([] {}).join(); }",
    "file": "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }",
    "stream": "#include <fstream>\nvoid f() { std::ofstream(\"x\") << 1; }",
    "socket": "#include <sys/socket.h>\nint f() { return socket(1, 1, 0); }",
    "environment": "#include <cstdlib>\nchar* f() { return std::getenv(\"HOME\"); }",
    "output": "#include <iostream>\nvoid f() { std::cout << 1; }",
}


@pytest.fixture(scope="module", name="impure_libraries")
def impure_libraries_fixture(tmp_path_factory):
    """One small library for each of IMPURE_LINES, compiled side by side."""
    folder = tmp_path_factory.mktemp("impure")
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    running, libraries = [], {}
    for what, code in IMPURE_LINES.items():
        stem = what.replace(" ", "_")
        (folder / f"{stem}.cc").write_text(code + "\n")
        command = compiler + ["-std=c++20", "-O1", "-c", f"{stem}.cc", "-o", f"{stem}.cc.o"]
        running.append(subprocess.Popen(command, cwd=folder))
        libraries[what] = stem
    assert [process.wait() for process in running] == [0] * len(running)
    for stem in libraries.values():
        subprocess.run(["ar", "rcs", f"{stem}.a", f"{stem}.cc.o"], cwd=folder, check=True)
    return {what: folder / f"{stem}.a" for what, stem in libraries.items()}


@pytest.mark.parametrize("what", IMPURE_LINES)
def test_the_reader_sees_an_impure(what, impure_libraries):
    assert impurities(undefined_symbols(str(impure_libraries[what])))
