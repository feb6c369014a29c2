package kubernetestest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"firsttap/internal/servertest"
)

const (
	plain        = "../kubernetes"
	withFirebase = "testdata/firebase"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// manifests are those of the kustomization's objects that have to agree with each other, with the program or with the docs.
type manifests struct {
	settings   *corev1.ConfigMap
	job        *batchv1.Job
	deployment *appsv1.Deployment
	service    *corev1.Service
	disruption *policyv1.PodDisruptionBudget
	network    *networkingv1.NetworkPolicy
	monitor    *monitoringv1.ServiceMonitor
}

// build returns what kubectl apply -k folder would send.
func build(t *testing.T, folder string) manifests {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	decode, m := decoder(t), manifests{}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, err := decode(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		m.add(object)
	}
	if m.settings == nil || m.job == nil || m.deployment == nil || m.service == nil || m.disruption == nil || m.network == nil || m.monitor == nil {
		t.Fatalf("an object is missing: %+v", m)
	}
	return m
}

func (m *manifests) add(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		m.settings = o
	case *batchv1.Job:
		m.job = o
	case *appsv1.Deployment:
		m.deployment = o
	case *corev1.Service:
		m.service = o
	case *policyv1.PodDisruptionBudget:
		m.disruption = o
	case *networkingv1.NetworkPolicy:
		m.network = o
	case *monitoringv1.ServiceMonitor:
		m.monitor = o
	}
}

// decoder decodes as the API server does with strict validation: unknown kinds, versions and fields are errors, fields that differ in
// case and fields that are given twice too.
func decoder(t *testing.T) func(text []byte) (runtime.Object, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	return func(text []byte) (runtime.Object, error) {
		object, _, err := serializer.Decode(text, nil, nil)
		return object, err
	}
}

// turnedOn is the kustomization with the component that it has in a comment.
func turnedOn(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(plain)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "kustomization.yaml")
	text := []byte(read(t, name))
	changed := bytes.Replace(text, []byte("# components: [firebase] #"), []byte("components: [firebase] #"), 1)
	if bytes.Equal(changed, text) {
		t.Fatalf("no component in a comment:\n%s", text)
	}
	if err := os.WriteFile(name, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestManifestsAreDecoded: the API server knows every field, of the files too, because kustomize drops what is given twice.
func TestManifestsAreDecoded(t *testing.T) {
	build(t, plain)
	build(t, withFirebase)
	if project := build(t, turnedOn(t)).settings.Data["FIRSTTAP_FIREBASE_PROJECT"]; project != "my-project" {
		t.Errorf("the component sets the project %q", project)
	}
	files, err := filepath.Glob(plain + "/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	decode := decoder(t)
	for _, name := range files {
		if filepath.Base(name) == "kustomization.yaml" {
			continue // build has read it
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
