// Package kubernetestest tests deploy/kubernetes without a cluster:
//
//   - manifests_test.go builds the kustomization, and decodes it as the API server does: a field or a kind that the Kubernetes API does
//     not know fails.
//   - rules_test.go checks what no type says: that settings, secrets, ports, selectors and times agree with each other, with the program
//     and with the docs.
//   - program_test.go runs the job and a pod's program with the environments of the manifests, on real servers, and asks the probes.
//
// It is a module of its own, so that the Kubernetes libraries stay out of the product's.
package kubernetestest
