package kubernetestest

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"firsttap/internal/config"
)

// stopTime is how long an instance may take to stop, without FIRSTTAP_DRAIN: docs/operations.md says 45 s with a drain of 5 s.
const stopTime = 40 * time.Second

// secretValues stand for the values of the Secret firsttap, by key.
func secretValues() map[string]string {
	return map[string]string{
		"database-url": "mysql://firsttap:password@mysql:3306/firsttap", "migrate-database-url": "mysql://owner:password@mysql:3306/firsttap",
		"redis-url": "redis://:password@redis:6379", "admin-key": "an-admin-key-for-the-tests-of-kubernetes",
		"jwt-secret": "a-jwt-secret-for-the-tests-of-kubernetes",
	}
}

// environment returns the variables of the only container, as the kubelet sets them. Secrets that are optional are not there.
func environment(m manifests, pod corev1.PodSpec, secret map[string]string) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range pod.Containers[0].EnvFrom {
		if from.ConfigMapRef == nil || from.ConfigMapRef.Name != m.settings.Name || from.Prefix != "" {
			return nil, fmt.Errorf("the variables are not those of the ConfigMap %s: %+v", m.settings.Name, from)
		}
		for name, value := range m.settings.Data {
			env[name] = value
		}
	}
	for _, v := range pod.Containers[0].Env {
		switch {
		case v.ValueFrom == nil:
			env[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef == nil:
			return nil, fmt.Errorf("%s is not from a Secret", v.Name)
		case v.ValueFrom.SecretKeyRef.Optional != nil && *v.ValueFrom.SecretKeyRef.Optional:
		case v.ValueFrom.SecretKeyRef.Name != "firsttap" || secret[v.ValueFrom.SecretKeyRef.Key] == "":
			return nil, fmt.Errorf("%s is from %s/%s, which nobody creates", v.Name, v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key)
		default:
			env[v.Name] = secret[v.ValueFrom.SecretKeyRef.Key]
		}
	}
	return env, nil
}

// readSettings returns the settings of a pod, and what is wrong with its variables: config does not know one, or refuses the whole. The job
// that migrates needs no secrets.
func readSettings(m manifests, pod corev1.PodSpec) (c config.Config, wrong []string) {
	env, err := environment(m, pod, secretValues())
	if err != nil {
		return c, []string{err.Error()}
	}
	known := map[string]bool{}
	c, err = config.Read(func(name string) (string, bool) {
		known[name] = true
		value, set := env[name]
		return value, set
	})
	if slices.Contains(pod.Containers[0].Args, "migrate") {
		err = config.WithoutSecrets(err)
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, v := range pod.Containers[0].Env {
		known[v.Name] = known[v.Name] || strings.HasPrefix(v.Name, "OTEL_") // the SDK reads those
		if !known[v.Name] {
			wrong = append(wrong, "config does not know "+v.Name)
		}
	}
	for name := range m.settings.Data {
		if !known[name] && !strings.HasPrefix(name, "OTEL_") {
			wrong = append(wrong, "config does not know "+name)
		}
	}
	return c, wrong
}

// TestManifestsAgree checks what no type says: config accepts the pods' settings, the pods run what the docs build, they have the time to stop
// that the program takes, and ports and selectors lead to them.
func TestManifestsAgree(t *testing.T) {
	for _, folder := range []string{plain, withFirebase, turnedOn(t)} {
		m := build(t, folder)
		pod, job := m.deployment.Spec.Template, m.job.Spec.Template
		serving, wrong := readSettings(m, pod.Spec)
		_, wrongOfJob := readSettings(m, job.Spec)
		wrong = append(wrong, wrongOfJob...)
		if serving.Migrate {
			wrong = append(wrong, "the pods migrate too: FIRSTTAP_MIGRATE is not off")
		}
		app := pod.Spec.Containers[0]
		if app.Image != job.Spec.Containers[0].Image || !strings.Contains(read(t, "../../docs/kubernetes.md"), "docker build -t "+app.Image+" ") {
			wrong = append(wrong, "the pods, the job and docs/kubernetes.md have different images")
		}
		wrong = append(wrong, stopping(serving, pod.Spec)...)
		wrong = append(wrong, ports(serving, app, m)...)
		wrong = append(wrong, selectors(m)...)
		for _, what := range wrong {
			t.Errorf("%s: %s", folder, what)
		}
	}
}

// stopping: after the preStop the instance has the time that it may take.
func stopping(c config.Config, p corev1.PodSpec) (wrong []string) {
	hook := p.Containers[0].Lifecycle
	if hook == nil || hook.PreStop == nil || hook.PreStop.Sleep == nil || p.TerminationGracePeriodSeconds == nil {
		return []string{"there is no preStop that sleeps, or no grace period"}
	}
	needs := time.Duration(hook.PreStop.Sleep.Seconds)*time.Second + c.Drain + stopTime
	if grace := time.Duration(*p.TerminationGracePeriodSeconds) * time.Second; grace < needs {
		return []string{fmt.Sprintf("the grace period is %s, and to stop may take %s", grace, needs)}
	}
	return nil
}

// ports: the container's ports are where the program listens, and the Service, the monitor and the network policy name them.
func ports(c config.Config, app corev1.Container, m manifests) (wrong []string) {
	listens := map[string]string{"http": c.Addr, "ops": c.OpsAddr}
	for _, p := range app.Ports {
		if want := fmt.Sprintf(":%d", p.ContainerPort); listens[p.Name] != want {
			wrong = append(wrong, fmt.Sprintf("the port %s is %s, and the program listens on %q", p.Name, want, listens[p.Name]))
		}
	}
	known := func(name string) bool {
		return slices.ContainsFunc(app.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	}
	served := map[string]bool{}
	for _, p := range m.service.Spec.Ports {
		served[p.Name] = known(p.TargetPort.StrVal)
	}
	if !served["http"] || !served["ops"] {
		wrong = append(wrong, "the Service does not lead to the ports http and ops")
	}
	for _, e := range m.monitor.Spec.Endpoints {
		if !served[e.Port] {
			wrong = append(wrong, "the monitor asks at the port "+e.Port)
		}
	}
	for _, from := range m.network.Spec.Ingress {
		for _, p := range from.Ports {
			if !known(p.Port.StrVal) || len(from.From) == 0 {
				wrong = append(wrong, fmt.Sprintf("the network policy lets %d sources in to %s", len(from.From), p.Port))
			}
		}
	}
	return wrong
}

func selects(s *metav1.LabelSelector, what map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && s != nil && !selector.Empty() && selector.Matches(labels.Set(what))
}

// selectors: everything selects the pods, and only what is meant for the job selects the job's.
func selectors(m manifests) (wrong []string) {
	pod, job := m.deployment.Spec.Template.Labels, m.job.Spec.Template.Labels
	for what, s := range map[string]*metav1.LabelSelector{
		"deployment": m.deployment.Spec.Selector, "service": {MatchLabels: m.service.Spec.Selector}, "disruption budget": m.disruption.Spec.Selector,
	} {
		if !selects(s, pod) || selects(s, job) {
			wrong = append(wrong, "the "+what+" does not select the pods alone")
		}
	}
	if s := &m.network.Spec.PodSelector; !selects(s, pod) || !selects(s, job) {
		wrong = append(wrong, "the network policy does not select the pods and the job's")
	}
	if !selects(&m.monitor.Spec.Selector, m.service.Labels) {
		wrong = append(wrong, "the monitor does not select the service")
	}
	return wrong
}

// TestPodsArePrivilegedForNothing: the pods and the job's run as a user without any privilege, can gain none, and can't change their files.
// They pass the standard "restricted" of Kubernetes.
func TestPodsArePrivilegedForNothing(t *testing.T) {
	for _, folder := range []string{plain, withFirebase} {
		m := build(t, folder)
		for what, pod := range map[string]corev1.PodSpec{"pods": m.deployment.Spec.Template.Spec, "job": m.job.Spec.Template.Spec} {
			for _, wrong := range privileges(pod) {
				t.Errorf("%s: the %s: %s", folder, what, wrong)
			}
		}
	}
}

// privileges returns what a pod may do that it need not.
func privileges(pod corev1.PodSpec) (wrong []string) {
	must := func(what string, ok bool) {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	is := func(field *bool, want bool) bool { return field != nil && *field == want }
	all := cmp.Or(pod.SecurityContext, &corev1.PodSecurityContext{})
	must("runAsNonRoot is not true", is(all.RunAsNonRoot, true))
	must("the user or the group is root, or the image's", all.RunAsUser != nil && *all.RunAsUser > 0 && all.RunAsGroup != nil && *all.RunAsGroup > 0)
	must("seccompProfile is not RuntimeDefault", all.SeccompProfile != nil && all.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault)
	must("the token of its service account is mounted", is(pod.AutomountServiceAccountToken, false))
	for _, c := range pod.Containers {
		own := cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
		must("allowPrivilegeEscalation is not false", is(own.AllowPrivilegeEscalation, false))
		must("readOnlyRootFilesystem is not true", is(own.ReadOnlyRootFilesystem, true))
		must("not all capabilities are dropped, or some are added",
			own.Capabilities != nil && slices.Contains(own.Capabilities.Drop, "ALL") && len(own.Capabilities.Add) == 0)
		must("the container overrides the pod's user or profile, or is privileged",
			own.RunAsNonRoot == nil && own.RunAsUser == nil && own.RunAsGroup == nil && own.SeccompProfile == nil && own.Privileged == nil)
	}
	return wrong
}

// TestSecretsAreDocumented: docs/kubernetes.md names each key that the manifests take from a Secret, and no other.
func TestSecretsAreDocumented(t *testing.T) {
	m := build(t, withFirebase)
	used := map[string]bool{}
	for _, p := range []corev1.PodSpec{m.deployment.Spec.Template.Spec, m.job.Spec.Template.Spec} {
		for _, v := range p.Containers[0].Env {
			if v.ValueFrom != nil {
				used[v.ValueFrom.SecretKeyRef.Name+" "+v.ValueFrom.SecretKeyRef.Key] = true
			}
		}
		for _, v := range p.Volumes {
			if v.Secret == nil || len(p.Containers[0].VolumeMounts) != 1 {
				t.Fatalf("a volume that is not one Secret: %+v", v)
			}
			file := strings.TrimPrefix(m.settings.Data["GOOGLE_APPLICATION_CREDENTIALS"], p.Containers[0].VolumeMounts[0].MountPath+"/")
			used[v.Secret.SecretName+" "+file] = true
		}
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([a-z.-]+)` \\|").FindAllStringSubmatch(section(t), -1) {
		documented[row[1]+" "+row[2]] = true
	}
	for key := range used {
		if !documented[key] {
			t.Errorf("docs/kubernetes.md does not say what %q is", key)
		}
	}
	for key := range documented {
		if !used[key] {
			t.Errorf("docs/kubernetes.md has %q, which no manifest uses", key)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// section returns the part of docs/kubernetes.md about Kubernetes.
func section(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?ms)^## On Kubernetes$.*?(^## |\z)`).FindString(read(t, "../../docs/kubernetes.md"))
	if found == "" {
		t.Fatal("docs/kubernetes.md has no section about Kubernetes")
	}
	return found
}
