package v1

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The definitions are made by `make -C kube crds`. Here their fields are compared with the types.
func TestTheDefinitionsHaveTheFieldsOfTheTypes(t *testing.T) {
	for name, object := range map[string]any{"gpuclaims": GpuClaim{}, "gpugangs": GpuGang{}, "gpunodestatuses": GpuNodeStatus{}} {
		text, err := os.ReadFile("../../crds/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &definition); err != nil {
			t.Fatal(err)
		}
		if len(definition.Spec.Versions) != 1 || definition.Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s: one version with a status subresource is needed", name)
		}
		compare(t, name, reflect.TypeOf(object), definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

var opaque = []reflect.Type{reflect.TypeOf(metav1.ObjectMeta{}), reflect.TypeOf(metav1.Time{})}

func compare(t *testing.T, path string, of reflect.Type, schema *apiextensions.JSONSchemaProps) {
	if schema == nil {
		t.Errorf("%s is in the type and not in the definition", path)
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		compare(t, path, of.Elem(), schema)
	case reflect.Slice:
		compare(t, path+"[]", of.Elem(), schema.Items.Schema)
	case reflect.Struct:
		if slices.Contains(opaque, of) {
			return
		}
		fields := map[string]reflect.Type{}
		collect(of, fields)
		for name, field := range fields {
			if sub, ok := schema.Properties[name]; ok {
				compare(t, path+"."+name, field, &sub)
			} else {
				t.Errorf("%s.%s is in the type and not in the definition", path, name)
			}
		}
		for name := range schema.Properties {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s.%s is in the definition and not in the type", path, name)
			}
		}
	case reflect.String, reflect.Int32, reflect.Int64, reflect.Bool:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean"}[of.Kind()]
		if want == "" {
			want = "integer"
		}
		if schema.Type != want {
			t.Errorf("%s is %s in the definition and %s in the type", path, schema.Type, want)
		}
	}
}

func collect(of reflect.Type, fields map[string]reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			collect(field.Type, fields)
		} else {
			fields[name] = field.Type
		}
	}
}
