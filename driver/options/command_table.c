#include "driver/options/options.h"

const CommandText command_texts[COMMAND_COUNT] = {
    [COMMAND_FINETUNE] =
        {"finetune",
         "fine-tune a model on a table, from folder and table to a trained model",
         {"skycc finetune FOLDER|MODEL.onnx TABLE... [options]",
          "skycc finetune --resume RUN [-d CLUSTER.yaml] [--without DEVICE]"},
         "Trains a Hugging Face folder, or an ONNX model, on a table (CSV, TSV or JSON lines). What is not given "
         "follows from the columns. skycc predict RUN uses the result.",
         {"skycc finetune minilm reviews.csv --text review --label sentiment",
          "skycc finetune minilm reviews.csv -d cluster.yaml -o reviews",
          "skycc finetune minilm reviews.csv --dry-run"},
         "Several files are one table. The columns decide the task, the table and the model all else. Every decision "
         "is "
         "printed and kept in RUN/settings.yaml, and an option decides otherwise. RUN/model is the trained model: of a "
         "folder again a Hugging Face folder with its tokenizer."},
    [COMMAND_CHECK] = {"check",
                       "import a model and list what is in it",
                       {"skycc check MODEL.onnx [options]"},
                       "Imports the model and lists operators, inputs, parameters, layers and warnings. Unbound "
                       "dimensions are set to 8.",
                       {"skycc check model.onnx --dim batch=8 --dim seq=128",
                        "skycc check model.onnx -v --lora r=8,targets=query,value", "skycc check model.onnx --json"},
                       NULL},
    [COMMAND_BERT] = {"bert",
                      "write a BERT graph of any size",
                      {"skycc bert --layers L --hidden H --heads A [options] -o MODEL.onnx"},
                      "Writes a BERT as an ONNX graph (opset 17) with inputs input_ids, attention_mask and "
                      "token_type_ids and output logits.",
                      {"skycc bert --layers 6 --hidden 128 --heads 2 -o bert.onnx",
                       "skycc bert --layers 2 --hidden 128 --heads 2 --batch 8 --sequence 64 -o b.onnx",
                       "skycc bert --layers 12 --hidden 768 --heads 12 --head mlm -o mlm.onnx"},
                      NULL},
    [COMMAND_COMPILE] =
        {"compile",
         "compile a model for a cluster into a directory of ready-to-run programs",
         {"skycc compile MODEL.onnx -d CLUSTER.yaml -o DIR [options]"},
         "Cuts the training of a model over the devices of a cluster, and leaves a native program per device in DIR. "
         "DIR/train starts them.",
         {"skycc compile model.onnx -d cluster.yaml -o programs --batch 32 --dim seq=128",
          "skycc compile m.onnx -d c.yaml -o p --dim seq=auto:128 --lengths d.safetensors",
          "skycc compile model.onnx -d c.yaml -o p --dim seq=128 --lora r=8,targets=query"},
         "The training program is derived from the model, and its layers are partitioned over the devices. Start the "
         "programs with DIR/train --data DATA.safetensors --steps 100."},
    [COMMAND_PROBE] =
        {"probe",
         "measure devices, links and a model's kernels",
         {"skycc probe [MODEL.onnx] -d CLUSTER.yaml -o PROFILE.json [options]", "skycc probe --devices",
          "skycc probe --site NAME --key NAME.key -d CLUSTER.yaml -o PROFILE.json",
          "mpiexec -n DEVICES ... skycc probe [MODEL.onnx] -d CLUSTER.yaml -o PROFILE.json [options]"},
         "Measures this machine and, with a model, its compiled kernels. skycc plan and compile use the "
         "profile instead of estimates from the device specifications.",
         {"skycc probe model.onnx -d cluster.yaml -o profile.json --dim seq=128",
          "skycc probe -d cluster.yaml -o profile.json",
          "skycc probe --site lyon --key lyon.key -d cluster.yaml -o profile.json"},
         "They multiply its times by each device's slowdown. If mpiexec starts one process per device, in "
         "the order of the cluster file, every device gets times of its own, and links between hosts are "
         "measured too. With --site at every site, links between sites are measured."},
    [COMMAND_PLAN] =
        {"plan",
         "assign layers to devices and prove how good the assignment is",
         {"skycc plan MODEL.onnx -d CLUSTER.yaml [options]", "skycc plan --costs COSTS.json [options]",
          "skycc plan MODEL.onnx --federation FEDERATION.yaml [options]"},
         "Assigns the layers of a model to the devices of a cluster and proves how good the assignment is.",
         {"skycc plan model.onnx -d cluster.yaml --batch 32 --dim seq=128",
          "skycc plan model.onnx -d cluster.yaml --without edge-3 --report html",
          "skycc plan --costs programs/costs.json -o plan.json"},
         "For a federation it compares one pipeline over all sites, one replica per site, and groups of sites as "
         "replicas."},
    [COMMAND_EXPLAIN] = {"explain",
                         "print a plan as text, compared with the trace of a run",
                         {"skycc explain PLAN.json|RUN|DIR [--trace TRACE.json]"},
                         "Prints a plan as text: a file, or that of a run of skycc finetune or of the programs that "
                         "skycc compile made. With the trace of a run (DIR/train --trace FILE), it compares "
                         "measured times with planned ones.",
                         {"skycc explain run", "skycc explain programs/plan.json --trace trace.json",
                          "skycc explain programs/plan.json --report svg"},
                         "A step lasts from the last update of the step before to its own last update. The first step "
                         "is left out if there are more, since it touches all memory for the first time."},
    [COMMAND_DIFF] =
        {"diff",
         "list what changed between two plans",
         {"skycc diff OLD NEW [--fail-above SECONDS]"},
         "Lists what differs between two plans (files, runs of skycc finetune, or programs of skycc compile): times, "
         "bound, moved layers, loads, memory, links, and what crosses between regions. Exits with 0 also if they "
         "differ.",
         {"skycc diff old-run new-run", "skycc diff old.json new.json --fail-above 1.5",
          "skycc diff programs/plan.json without-edge-3.json"},
         NULL},
    [COMMAND_VERIFY] =
        {"verify",
         "check a plan and its proof, independently of the solver",
         {"skycc verify PLAN.json|RUN|DIR [--costs COSTS.json] [--audit FILE]..."},
         "Recomputes every number of a plan from the costs, and checks the proof of its lower bound with "
         "exact integers. Exits with 1 and the reason if anything is not as the plan says.",
         {"skycc verify programs", "skycc verify plan.json --costs costs.json --allow-unproven",
          "skycc verify plan.json --costs costs.json --audit lyon.json"},
         "It recomputes instruction lists and crossings too, and runs the schedule in the simulator. "
         "The certificate is that of the lower bound, or that no plan fits; no other allocator's result "
         "may beat the certified bound. A plan that calls itself proven optimal must prove it. If its "
         "bound is above the certified one, the rest relies on the solver's search, and verify says so. "
         "With --audit, nothing may have crossed between sites that the plan does not list."},
    [COMMAND_PLOT] =
        {"plot",
         "draw the losses of a run",
         {"skycc plot LOG.csv|RUN... [-o LOSS.svg]"},
         "Draws training and evaluation losses from the log of DIR/train --log FILE, or of a run of skycc finetune. "
         "Several logs make one picture, with a line each.",
         {"skycc plot run -o loss.svg", "skycc plot a.csv b.csv -o both.svg",
          "skycc plot rounds.csv -o federation.svg"},
         "That line is the evaluation loss where all logs have one, else the training loss. From the log of skycc "
         "coordinate --log FILE it draws one line per site and one for the mean. The picture is one SVG file that "
         "follows the reader's light or dark colours. The log of a run that has not ended is drawn as far as it goes."},
    [COMMAND_RUN] = {"run",
                     "run a model here: outputs, loss, gradients, some training steps",
                     {"skycc run MODEL.onnx --inputs FILE... -o OUT.safetensors [options]"},
                     "Compiles the model for this machine, runs it, and writes out/NAME for every output of the graph. "
                     "With --loss it also writes the loss.",
                     {"skycc run model.onnx --inputs batch.safetensors -o out.safetensors",
                      "skycc run m.onnx --inputs b.npz --loss cross-entropy --grad -o g.safetensors",
                      "skycc run m.onnx --inputs b.npz --train 10 --optimizer adamw -o t.safetensors"},
                     NULL},
    [COMMAND_EXPORT] = {"export",
                        "write trained weights back into ONNX or a Hugging Face folder",
                        {"skycc export RUN -o TRAINED.onnx|--folder DIR|--adapter DIR",
                         "skycc export MODEL.onnx CHECKPOINT -o TRAINED.onnx",
                         "skycc export MODEL.onnx CHECKPOINT --adapter DIR",
                         "skycc export MODEL.onnx CHECKPOINT --folder DIR [--source FOLDER] [--labels DATA]"},
                        "Writes the model with the weights of a checkpoint. Branches that --lora trained are merged "
                        "into the weights, or written as an adapter of their own.",
                        {"skycc export run -o trained.onnx",
                         "skycc export model.onnx checkpoints --folder trained --labels data.safetensors",
                         "skycc export model.onnx checkpoints --adapter adapter"},
                        NULL},
    [COMMAND_TOKENIZE] =
        {"tokenize",
         "turn a table of texts into a data set of token ids",
         {"skycc tokenize --tokenizer FILE --text COL --label COL TABLE -o DATA",
          "skycc tokenize --vocab VOCAB.txt --task TASK TSV -o DATA [options]"},
         "Turns rows of text into padded token ids and labels for training. TABLE is TSV, CSV or JSON lines; - reads "
         "standard input. DATA is a safetensors file.",
         {"skycc tokenize --model minilm --text a,b --label label t.csv -o t.safetensors",
          "skycc tokenize --model minilm --text review --task mlm r.csv -o r.safetensors",
          "skycc tokenize --vocab vocab.txt --task mnli mnli.tsv -o mnli.safetensors"},
         "DATA holds input_ids, attention_mask, token_type_ids, lengths and labels. With --task, columns are found by "
         "name in the first line (sentence1, sentence2 or sentence; label or gold_label), else by the task's positions "
         "in GLUE."},
    [COMMAND_IMPORT] = {"import",
                        "make an ONNX graph of a Hugging Face folder",
                        {"skycc import FOLDER -o MODEL.onnx [--head HEAD]"},
                        "Reads config.json and model.safetensors of an encoder or a decoder, and writes the graph, "
                        "ready for check, run and compile.",
                        {"skycc import minilm -o minilm.onnx", "skycc import minilm --head seqcls:3 -o classifier.onnx",
                         "skycc import qwen3 --head lm -o qwen3.onnx"},
                        "Encoders are BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, ELECTRA, ALBERT, MPNet, ModernBERT, "
                        "DeBERTa-v2/3, ERNIE, Data2Vec, EuroBERT, NomicBERT, GTE, Jina v3, ESM and T5's."},
    [COMMAND_HEAD] = {"head",
                      "put a head on an encoder that is an ONNX model",
                      {"skycc head MODEL.onnx --head HEAD -o OUT.onnx"},
                      "Writes the model with new outputs. A model that skycc import made gets the head of its family, "
                      "any other model BERT's. With --as-is, the model keeps the head that it has.",
                      {"skycc head encoder.onnx --head seqcls:3 -o classifier.onnx",
                       "skycc head encoder.onnx --head tokcls:9 --labels words.safetensors -o t.onnx",
                       "skycc head exported.onnx --head seqcls:2 --as-is -o classifier.onnx"},
                      NULL},
    [COMMAND_PREDICT] =
        {"predict",
         "print what a trained model predicts for texts",
         {"skycc predict RUN (--text TEXT [--text2 TEXT] | --data TABLE) [options]",
          "skycc predict MODEL [CHECKPOINT] --text TEXT [--text2 TEXT] [options]",
          "skycc predict MODEL [CHECKPOINT] --data DATA.safetensors [options]",
          "skycc predict MODEL [CHECKPOINT] --data TABLE --text COL[,COL] [options]"},
         "Prints, as CSV, what the model predicts for a text, a pair of texts, or many. RUN is what skycc finetune "
         "made. MODEL is an ONNX graph or a Hugging Face folder.",
         {"skycc predict run --text 'The battery died after a week.'",
          "skycc predict run --data reviews.csv -o predictions.csv",
          "skycc predict model.onnx checkpoints --data reviews.csv --text review"},
         "The output depends on the head: labels with scores (seqcls), labels of words by their first tokens (tokcls), "
         "a number (regression), the answer to the question --text in --text2 with its place (qa), the five likeliest "
         "pieces for each mask in a text (mlm), or an embedding. With --text2 the similarity of two embeddings is "
         "printed."},
    [COMMAND_EVALUATE] =
        {"evaluate",
         "measure how good a trained model is on a table with labels",
         {"skycc evaluate RUN FILE [options]", "skycc evaluate MODEL CHECKPOINT DATA.safetensors [options]"},
         "Prints the metrics of a model on labelled rows: those of training, and precision, recall and F1 of every "
         "label. RUN is what skycc finetune made; FILE is a table with its columns. Otherwise DATA is a data set of "
         "skycc tokenize.",
         {"skycc evaluate run test.csv", "skycc evaluate run test.csv -o metrics.json",
          "skycc evaluate model.onnx checkpoints test.safetensors"},
         NULL},
    [COMMAND_KEY] =
        {"key",
         "make the keys of a site",
         {"skycc key NAME"},
         "Writes NAME.key, the secret key that stays at the site, and NAME.pub, and prints the public key, which goes "
         "into the cluster file of all sites (sites: [{name: ..., key: ...}]). Existing files are never overwritten.",
         {"skycc key lyon", "skycc key keys/kyoto", "skycc key coordinator"},
         NULL},
    [COMMAND_FEDERATE] = {"federate",
                          "make a folder for every site of a federation, which keeps its data and shares the model",
                          {"skycc federate MODEL.onnx -c FEDERATION.yaml -o DIR [options]"},
                          "Compiles the model for every site. Each site trains on its own rows; in every round the "
                          "sites' models are averaged so that nobody sees another site's model.",
                          {"skycc federate model.onnx -c sites.yaml -o fed --dim batch=8 --dim seq=128",
                           "skycc federate m.onnx -c sites.yaml -o b --dim batch=8 --from fed/coordinator",
                           "skycc federate --amend change.yaml -o fed"},
                          "Start a site with DIR/SITE/train --join --data DATA.safetensors --checkpoint CHECKPOINT, "
                          "and the coordinator with skycc coordinate."},
    [COMMAND_COORDINATE] =
        {"coordinate",
         "run the coordinator of a federation until its last round",
         {"skycc coordinate DIR/coordinator [options]"},
         "Waits for the sites of a federation, adds up their updates, and keeps the model in "
         "DIR/coordinator/model.safetensors. If it is killed, start it again: it continues with the same round.",
         {"skycc coordinate federation/coordinator", "skycc coordinate federation/coordinator --log rounds.csv",
          "skycc coordinate federation/coordinator --from-round 12"},
         NULL},
    [COMMAND_DEPLOY] =
        {"deploy",
         "copy programs, weights and data to the hosts of a plan, or list what they lack",
         {"skycc deploy DIR [--data FILE] [--to PATH]", "skycc deploy DIR --check [--data FILE] [--to PATH]",
          "skycc deploy DIR --collect CHECKPOINTS"},
         "Copies by ssh what each host needs from DIR, the output of skycc compile: its programs, its part of the "
         "weights, and the data set if it is given.",
         {"skycc deploy programs --data data.safetensors", "skycc deploy programs --check",
          "skycc deploy programs --to /srv/training --ssh 'ssh -p 2222'"},
         "Files that are there with the right hash are not sent again, and an interrupted transfer continues. With "
         "--check nothing is copied: a table lists what each host has, and errors say what is missing. DIR/SITE is for "
         "the hosts of one site. Exits with 6 if a host is not ready, or could not be made ready."},
};
