//! A pod can be a process on this machine: with its own permissions, its exit code, and a graceful shutdown.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};

use super::nodes::{main_container, phase};
use crate::support::hollow_nodes::{Behaviour, ContainerMode, VariableValue, is_ready};
use crate::support::{Testbed, manifests, wait};

#[tokio::test]
async fn a_pod_runs_as_a_local_process_with_its_account_and_reports_its_exit_code() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("process").await;
    let run = ContainerMode::Process { entry_point: Vec::new(), environment: Vec::new() };
    bed.nodes().set_behaviour(&namespace, "", Behaviour { run, ..Behaviour::default() });
    let job = "
metadata: {name: check}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: example/check
        command: [sh, -c, 'echo \"$GREETING from $POD\"; grep -q token: \"$KUBECONFIG\" && exit 7']
        env:
        - {name: GREETING, value: hello}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
";
    manifests::create::<Job>(bed.client(), &namespace, job).await;
    let over = |pod: &Pod| phase(pod) == "Failed";
    let pods = bed.nodes().pods(&namespace, "check-", 1, "have failed", over).await;
    let state = main_container(&pods[0]).state.as_ref().and_then(|state| state.terminated.as_ref());
    assert_eq!(state.expect("ended").exit_code, 7);
    assert_eq!(bed.nodes().log(&pods[0], "main"), format!("hello from {}", pods[0].name_any()));
    let jobs = Api::<Job>::namespaced(bed.client(), &namespace);
    wait::until("the job has failed", || async {
        (jobs.get_status("check").await.ok()?.status?.failed == Some(1)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_process_receives_sigterm_before_its_pod_is_removed() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("graceful").await;
    let entry_point = vec!["sh".to_owned(), "-c".to_owned()];
    let environment = vec![
        ("PLACE".to_owned(), VariableValue::Address),
        ("WORD".to_owned(), VariableValue::Text("ready".to_owned())),
    ];
    let run = ContainerMode::Process { entry_point, environment };
    bed.nodes().set_behaviour(&namespace, "", Behaviour { run, ..Behaviour::default() });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("goodbye");
    let yaml = format!(
        "
metadata: {{name: one}}
spec:
  containers:
  - name: main
    image: example/main
    args: ['trap \"echo bye > {}; exit\" TERM; echo $WORD at $PLACE; while :; do sleep 0.05; done']
",
        file.display()
    );
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    let pod = bed.nodes().pod(&namespace, "one", "is ready", is_ready).await;
    wait::until("the process listens", || async {
        let port = bed.nodes().port(&pod, "main", "PLACE")?;
        (bed.nodes().log(&pod, "main") == format!("ready at 127.0.0.1:{port}")).then_some(())
    })
    .await;
    let api = Api::<Pod>::namespaced(bed.client(), &namespace);
    api.delete("one", &DeleteParams::default()).await.expect("deleted");
    wait::until("the pod is gone", || async {
        api.get_opt("one").await.expect("readable").is_none().then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(file).expect("it received SIGTERM").trim(), "bye");
}
