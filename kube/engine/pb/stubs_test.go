package pb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The stubs are made by `make -C kube stubs`. Here what they say is compared with the files in proto/.
func TestTheStubsSayWhatTheProtoFilesSay(t *testing.T) {
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("protoc is not installed")
	}
	for _, file := range []protoreflect.FileDescriptor{File_gpusched_v1_types_proto, File_gpusched_v1_keys_proto,
		File_gpusched_v1_node_proto, File_gpusched_v1_scheduler_proto} {
		out := filepath.Join(t.TempDir(), "descriptors")
		done := exec.Command(protoc, "--proto_path=../../../proto", "--descriptor_set_out="+out, file.Path())
		if text, err := done.CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", file.Path(), text)
		}
		bytes, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var set descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(bytes, &set); err != nil {
			t.Fatal(err)
		}
		stub, want := protodesc.ToFileDescriptorProto(file), set.File[0]
		stub.Options = want.Options // The package of the Go code.
		for _, one := range []*descriptorpb.FileDescriptorProto{stub, want} {
			forEachField(one.MessageType, func(f *descriptorpb.FieldDescriptorProto) { f.JsonName = nil })
		}
		if !proto.Equal(stub, want) {
			t.Errorf("%s has changed: run the target stubs of kube/Makefile", file.Path())
		}
	}
}

func forEachField(messages []*descriptorpb.DescriptorProto, call func(*descriptorpb.FieldDescriptorProto)) {
	for _, message := range messages {
		for _, field := range message.Field {
			call(field)
		}
		forEachField(message.NestedType, call)
	}
}
